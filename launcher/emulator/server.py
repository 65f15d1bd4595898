"""The emulator's one port: a forward proxy for HTTPS (CONNECT), and plain HTTP for the jobs and for control.

Behind CONNECT it speaks TLS in the name of every Azure host. Storage goes on to Azurite, request by request, so that
uploads can be counted and disturbed; everything else is answered here.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import socketserver
import ssl
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from launcher.emulator.faults import BEFORE
from launcher.emulator.messages import RefusedError, Request, Response
from launcher.emulator.settings import BLOB_HOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.emulator.faults import Fault, FaultBox

_HOP_BY_HOP = frozenset({"connection", "proxy-connection", "keep-alive", "transfer-encoding", "te", "upgrade"})
_HTML = b"<!DOCTYPE html><html><body>Our services aren't available right now</body></html>"
_RESET = struct.pack("ii", 1, 0)


class Server:
    """Listens on a free port of the loopback until it is stopped."""

    def __init__(
        self,
        *,
        answer: Callable[[Request], Response],
        faults: FaultBox,
        tls: ssl.SSLContext,
        azurite_port: int,
        saw: Callable[[Request, int], None],
    ) -> None:
        self.answer = answer
        self.faults = faults
        self.tls = tls
        self.azurite_port = azurite_port
        self.saw = saw
        self.stopping = threading.Event()
        self._sockets = _Sockets(("127.0.0.1", 0), _Connection)
        self._sockets.emulator = self
        self.port: int = self._sockets.server_address[1]

    def start(self) -> None:
        """Answer from now on, on threads of its own."""
        threading.Thread(target=self._sockets.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening; a request that hangs on purpose is let go."""
        self.stopping.set()
        self._sockets.shutdown()
        self._sockets.server_close()


class _Sockets(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256
    block_on_close = False
    emulator: Server

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is no error of the emulator's."""


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Sockets
    host = ""
    """Of the tunnel; empty on plain HTTP."""
    _date: str | None = None
    _upstream: http.client.HTTPConnection | None = None

    def do_CONNECT(self) -> None:
        """Become a TLS server for the host that was asked for."""
        self.host = self.path.partition(":")[0]
        self.send_response(200, "Connection established")
        self.end_headers()
        self.wfile.flush()
        try:
            self.request = self.server.emulator.tls.wrap_socket(self.connection, server_side=True)
        except (ssl.SSLError, OSError):
            self.close_connection = True
            return
        self.setup()
        self.close_connection = False

    def _any(self) -> None:
        request = self._request()
        fault = self.server.emulator.faults.strike(request) if self.host else None
        if fault and fault.kind in BEFORE:
            self.server.emulator.saw(request, 0)
            self._spoil(fault, Response())
            return
        if fault and fault.kind == "slow":
            self.server.emulator.stopping.wait(fault.seconds)
        if self.host == BLOB_HOST:
            self._forward(request, fault)
            return
        response = self._answered(request)
        if fault and fault.kind == "invisible":
            self.server.emulator.faults.hide(request.path, fault.seconds)
        self.server.emulator.saw(request, response.status)
        if fault and fault.kind not in {"slow", "invisible"}:
            self._spoil(fault, response)
        else:
            self._send(response.status, response.content(), response.headers)

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = _any  # noqa: N815 (http.server's names)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The time this server says it is; a fault may set it wrong."""
        return self._date or super().date_time_string(timestamp)

    def finish(self) -> None:
        """Close the tunnel too: the socket it was made of is no longer ours to close."""
        with contextlib.suppress(OSError, ValueError):
            super().finish()
        with contextlib.suppress(OSError):
            self.connection.close()
        if self._upstream:
            self._upstream.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are recorded by the emulator, not printed."""

    def _request(self) -> Request:
        length = int(self.headers.get("Content-Length") or 0)
        target = urlsplit(self.path)
        return Request(
            method=self.command,
            host=self.host,
            path=unquote(target.path),
            query=dict(parse_qsl(target.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(length) if length else b"",
        )

    def _answered(self, request: Request) -> Response:
        if request.method == "GET" and self.server.emulator.faults.is_hidden(request.path):
            return RefusedError(404, "ResourceNotFound", "not visible yet").response
        try:
            return self.server.emulator.answer(request)
        except RefusedError as refusal:
            return refusal.response

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        stamp = f"{time.time_ns():x}"
        self._date = headers.get("Date")
        standard = {"Content-Type": "application/json; charset=utf-8", "x-ms-request-id": stamp}
        self.send_response(status)
        for name, value in (standard | headers).items():
            if name != "Date":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _spoil(self, fault: Fault, response: Response) -> None:
        """Answer as the fault says, instead of with ``response``."""
        if fault.kind in {"status", "status_after"}:
            error = {"error": {"code": fault.code, "message": fault.message, "details": []}}
            self._send(fault.status, json.dumps(error).encode(), fault.headers)
        elif fault.kind in {"garbage", "garbage_after"}:
            self._send(200, _HTML, {"Content-Type": "text/html"})
        elif fault.kind == "empty_after":
            self._send(200, b"", {})
        else:
            if fault.kind.startswith("hang"):
                self.server.emulator.stopping.wait(fault.seconds)
            if fault.kind == "half_after":
                self._send_half(response)
            self._reset()

    def _send_half(self, response: Response) -> None:
        content = response.content()
        self.send_response(response.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])

    def _reset(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.connection.close()

    def _forward(self, request: Request, fault: Fault | None) -> None:
        """Hand a storage request to Azurite, which knows the account by the host's name."""
        try:
            answer, content = self._upstream_answer(request.body)
        except (OSError, http.client.HTTPException):
            self._reset()
            return
        self.server.emulator.saw(request, answer.status)
        if fault and fault.kind != "slow":
            self._spoil(fault, Response(status=answer.status))
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP | {"content-length", "date", "server"}:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _upstream_answer(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        """Azurite's answer, over the open connection, or over a new one when Azurite has closed it."""
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        for connection in (self._upstream, None):
            is_last = connection is None
            connection = connection or http.client.HTTPConnection(
                "127.0.0.1", self.server.emulator.azurite_port, timeout=60
            )
            try:
                connection.request(self.command, self.path, body or None, headers)
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                if is_last:
                    raise
                continue
            self._upstream = connection
            return answer, content
        raise AssertionError("unreachable")
