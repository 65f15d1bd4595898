"""Blob storage, as far as the emulator itself needs it: Shared Key requests and shared access signatures.

Format: learn.microsoft.com "Authorize with Shared Key" and "Create a service SAS" (version 2020-12-06 of both).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import queue
import re
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

from launcher.emulator.settings import BLOB_HOST, STORAGE_ACCOUNT, STORAGE_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERSION = "2020-12-06"
_SIGNED_HEADERS = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
    "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip


class Blobs:
    """One storage account behind ``127.0.0.1:port``."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._idle: queue.SimpleQueue[http.client.HTTPConnection] = queue.SimpleQueue()

    def close(self) -> None:
        """Close every connection that is open."""
        while not self._idle.empty():
            self._idle.get().close()

    def create_container(self, name: str) -> None:
        """Create it; harmless when it is there."""
        self._ask("PUT", f"/{name}", {"restype": "container"}, expected=(201, 409))

    def put(self, container: str, blob: str, content: bytes) -> None:
        """Write a whole blob."""
        self._ask("PUT", f"/{container}/{blob}", body=content, headers={"x-ms-blob-type": "BlockBlob"}, expected=(201,))

    def get(self, container: str, blob: str) -> bytes | None:
        """Read a whole blob; None when there is none."""
        status, content = self._ask("GET", f"/{container}/{blob}", expected=(200, 404))
        return content if status == 200 else None

    def delete(self, container: str, blob: str) -> None:
        """Delete it; harmless when there is none."""
        self._ask("DELETE", f"/{container}/{blob}", expected=(202, 404))

    def names(self, container: str, prefix: str) -> Iterator[str]:
        """Every blob whose name begins with ``prefix``."""
        marker = ""
        while True:
            query = {"restype": "container", "comp": "list", "prefix": prefix} | ({"marker": marker} if marker else {})
            status, content = self._ask("GET", f"/{container}", query, expected=(200, 404))
            if status == 404:
                return
            listing = ElementTree.fromstring(content.lstrip(b"\xef\xbb\xbf"))
            yield from (name.text or "" for name in listing.iterfind("Blobs/Blob/Name"))
            marker = listing.findtext("NextMarker") or ""
            if not marker:
                return

    def _ask(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        *,
        expected: tuple[int, ...],
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes]:
        query, target = query or {}, f"/{STORAGE_ACCOUNT}{quote(path)}"
        sent = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION, **(headers or {})}
        if body:
            sent["content-length"] = str(len(body))
        sent["authorization"] = f"SharedKey {STORAGE_ACCOUNT}:{_signature(method, target, query, sent)}"
        status, content = self._exchange(method, f"{target}?{urlencode(query)}" if query else target, body, sent)
        if status not in expected:
            raise OSError(f"blob storage answers {status} to {method} {path}: {content[:300]!r}")
        return status, content

    def _exchange(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """One request over an idle connection; Azurite closes those after 5 s, and then over a new one."""
        while True:
            is_new = self._idle.empty()
            connection = self._connection()
            try:
                connection.request(method, target, body or None, headers)
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                if is_new:
                    raise
                continue
            self._idle.put(connection)
            return answer.status, content

    def _connection(self) -> http.client.HTTPConnection:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)


def container_signature(container: str, *, permissions: str, hours: float = 24) -> str:
    """A shared access signature of a container, as a query string."""
    start, end = (_time(timedelta(minutes=-5)), _time(timedelta(hours=hours)))
    resource = f"/blob/{STORAGE_ACCOUNT}/{container}"
    # ... identifier, address, protocol, version, kind, snapshot, encryption scope, five headers
    text = "\n".join((permissions, start, end, resource, "", "", "", _VERSION, "c", "", "", "", "", "", "", ""))
    query = {"sv": _VERSION, "st": start, "se": end, "sr": "c", "sp": permissions, "sig": _sign(text)}
    return urlencode(query)


def blob_url(container: str, blob: str) -> str:
    """An address a client reads the blob at, signature included."""
    return f"https://{BLOB_HOST}/{container}/{quote(blob)}?{container_signature(container, permissions='rl')}"


def _signature(method: str, path: str, query: dict[str, str], headers: dict[str, str]) -> str:
    standard = [headers.get(name, "") for name in _SIGNED_HEADERS]
    own = sorted(name for name in headers if name.startswith("x-ms-"))
    canonical_headers = "".join(f"{name}:{headers[name]}\n" for name in own)
    canonical_query = "".join(f"\n{name}:{query[name]}" for name in sorted(query))
    text = "\n".join((method, *standard)) + f"\n{canonical_headers}/{STORAGE_ACCOUNT}{path}{canonical_query}"
    return _sign(re.sub(r"\r", "", text))


def _sign(text: str) -> str:
    digest = hmac.new(base64.b64decode(STORAGE_KEY), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def _time(offset: timedelta) -> str:
    return (datetime.now(UTC) + offset).strftime("%Y-%m-%dT%H:%M:%SZ")
