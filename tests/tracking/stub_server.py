"""A tracking server over real HTTP that does as told: answers, fails, is slow, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN_RUN = "0123456789abcdef0123456789abcdef"
"""The run that is there already, as Azure ML makes one for a job."""


@dataclass
class StubServer:
    """What it was asked, and how it behaves from now on."""

    uri: str = ""
    artifacts: Path = Path()
    status: int = 200
    """Anything else is answered to every call."""
    delay_seconds: float = 0.0
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """(method of MLflow's API, body) of the calls that were answered well."""
    refused: int = 0
    """Calls that were not."""

    def bodies(self, method: str) -> list[dict[str, Any]]:
        """The bodies of the calls of one method."""
        return [body for name, body in self.calls if name == method]

    def steps(self, metric: str) -> list[int]:
        """Steps of a metric, as they came."""
        points = [point for body in self.bodies("runs/log-batch") for point in body.get("metrics", ())]
        return [int(point.get("step", 0)) for point in points if point["key"] == metric]

    def answer(self, method: str) -> dict[str, Any]:
        """What the real server would say."""
        info = {
            "run_id": OWN_RUN, "run_uuid": OWN_RUN, "experiment_id": "1", "status": "RUNNING", "start_time": "1",
            "artifact_uri": self.artifacts.as_uri(), "lifecycle_stage": "active",
        }  # fmt: skip
        run = {"info": info, "data": {}}
        answers: dict[str, dict[str, Any]] = {
            "experiments/get-by-name": {"experiment": {"experiment_id": "1", "name": "launcher"}},
            "runs/create": {"run": run},
            "runs/get": {"run": run},
            "runs/update": {"run_info": info},
        }
        return answers.get(method, {})


@contextmanager
def stub_server(artifacts: Path) -> Iterator[StubServer]:
    """A server on a free port of this machine, for as long as the block lasts."""
    stub = StubServer(artifacts=artifacts)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            self.reply(body)

        def do_GET(self) -> None:
            self.reply({})

        def reply(self, body: dict[str, Any]) -> None:
            time.sleep(stub.delay_seconds)
            method = self.path.partition("?")[0].removeprefix("/api/2.0/mlflow/")
            if stub.status == 200:
                stub.calls.append((method, body))
                text = json.dumps(stub.answer(method)).encode()
            else:
                stub.refused += 1
                text = json.dumps({"error_code": "", "message": "not now"}).encode()
            self.send_response(stub.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing: what was asked is in ``calls``."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub.uri = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
