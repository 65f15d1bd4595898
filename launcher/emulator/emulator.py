"""The emulator, assembled: ``with emulate() as emulator`` runs one until the block ends."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.emulator.azurite import azurite
from launcher.emulator.blobs import Blobs
from launcher.emulator.certificates import make_certificates
from launcher.emulator.control import Control
from launcher.emulator.faults import FaultBox
from launcher.emulator.history import History
from launcher.emulator.jobs import Jobs
from launcher.emulator.management import Management
from launcher.emulator.messages import RefusedError, Request, Response
from launcher.emulator.mlflow_api import MlflowApi
from launcher.emulator.mounts import Mounts
from launcher.emulator.runner import Runner
from launcher.emulator.server import Server
from launcher.emulator.settings import MANAGEMENT_HOST, REGISTRY_HOST, SIGN_IN_HOST, Settings
from launcher.emulator.sign_in import SignIn
from launcher.emulator.traffic import Traffic
from launcher.emulator.workspace import CONTAINERS, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESS_VARIABLE = "LAUNCHER_EMULATOR"
"""Tells a command that it runs inside, and where ``/emulator`` is."""


class Emulator:
    """One emulated subscription behind one port."""

    def __init__(self, settings: Settings, folder: Path, azurite_port: int) -> None:
        self.settings = settings
        self.folder = folder
        self.faults = FaultBox()
        self.traffic = Traffic()
        self.workspace = Workspace(settings)
        self.sign_in = SignIn(self.workspace)
        self.authority, tls = make_certificates(folder)
        self.blobs = Blobs(azurite_port)
        for container in CONTAINERS.values():
            self.blobs.create_container(container)
        self._runner = Runner(
            self.workspace,
            Mounts(self.workspace, self.blobs, folder / "datastores"),
            folder / "jobs",
            mlflow_uri=lambda: self.address,
        )
        jobs = Jobs(self.workspace, self._runner.start)
        self._management = Management(self.workspace, self.blobs, jobs)
        self._mlflow = MlflowApi(self.workspace, (folder / "mlflow").as_uri())
        self._history = History(self.workspace, jobs, self._mlflow)
        self._control = Control(self.workspace, self.faults, self.sign_in, self.traffic)
        self._server = Server(
            answer=self.answer, faults=self.faults, tls=tls, azurite_port=azurite_port, saw=self.traffic.saw
        )

    @property
    def address(self) -> str:
        """The port as a URL: the proxy of a client inside, and the door to ``/emulator``."""
        return f"http://127.0.0.1:{self._server.port}"

    def start(self) -> None:
        """Answer from now on."""
        self._server.start()

    def stop(self) -> None:
        """End every job and stop answering."""
        self._runner.stop()
        self._server.stop()
        self.blobs.close()

    def answer(self, request: Request) -> Response:
        """Send a request to the service that its host stands for; plain HTTP is this machine's own."""
        if request.host == SIGN_IN_HOST:
            return self.sign_in.answer(request)
        if not request.host:
            return (
                self._control.answer(request) if request.path.startswith("/emulator/") else self._mlflow.answer(request)
            )
        if request.host == REGISTRY_HOST:
            return _manifest(request)
        if request.path != "/discovery":
            self.sign_in.check(request)
        if request.host == MANAGEMENT_HOST:
            return self._management.answer(request)
        if request.host.endswith(".api.azureml.ms"):
            return self._history.answer(request)
        raise RefusedError(404, "NotFound", f"the emulator is not {request.host}")

    def variables(self) -> dict[str, str]:
        """Environment variables that put an unmodified client inside: proxy, authority, and a service principal."""
        settings, authority = self.settings, str(self.authority)
        return {
            "HTTPS_PROXY": self.address,
            "https_proxy": self.address,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            "REQUESTS_CA_BUNDLE": authority,
            "SSL_CERT_FILE": authority,
            "CURL_CA_BUNDLE": authority,
            "AZURE_TENANT_ID": settings.tenant,
            "AZURE_CLIENT_ID": settings.client_id,
            "AZURE_CLIENT_SECRET": settings.client_secret,
            "AZUREML_ARM_SUBSCRIPTION": settings.subscription,
            "AZUREML_ARM_RESOURCEGROUP": settings.resource_group,
            "AZUREML_ARM_WORKSPACE_NAME": settings.workspace,
            ADDRESS_VARIABLE: self.address,
        }


def _manifest(request: Request) -> Response:
    """Microsoft's registry: every tag exists, and its digest is that of its name."""
    digest = f"sha256:{hashlib.sha256(request.path.encode()).hexdigest()}"
    return Response(headers={"Docker-Content-Digest": digest})


@contextmanager
def emulate(settings: Settings | None = None, *, folder: Path | None = None) -> Iterator[Emulator]:
    """A running emulator; its blobs, jobs and certificates lie below ``folder``, or are gone at the end.

    Raises:
        MissingExtraError: Azurite or the cryptography package is not installed.
    """
    with contextlib.ExitStack() as stack:
        kept = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="launcher-emulator-")))
        (kept / "azurite").mkdir(parents=True, exist_ok=True)
        emulator = Emulator(settings or Settings(), kept, stack.enter_context(azurite(kept / "azurite")))
        emulator.start()
        stack.callback(emulator.stop)
        yield emulator
