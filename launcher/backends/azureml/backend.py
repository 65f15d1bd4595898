"""The Azure ML backend: render, submit once, status, logs, cancel, download."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from launcher.backends import parse_handle
from launcher.backends.azureml import known
from launcher.backends.azureml.address import Address, resolve_address
from launcher.backends.azureml.mounts import RUN_OUTPUT
from launcher.backends.azureml.options import options_of
from launcher.backends.azureml.patience import Patience
from launcher.backends.azureml.prepared import prepare
from launcher.backends.azureml.states import exit_code, reason, state_of
from launcher.backends.azureml.submission import FINGERPRINT, submit_once
from launcher.backends.backend import TERMINAL, RunStatus, Submission
from launcher.errors import BackendError, NoSuchRunError, RunFailedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.backends.azureml.client import Client, JobView
    from launcher.backends.azureml.models import RegisteredModel
    from launcher.backends.azureml.storage import Folder
    from launcher.job.spec import JobSpec


_KEPT_FIGURES = frozenset({"loss", "evaluation_loss", "tokens_seen"})
"""Metrics a registered model carries."""


@dataclass(frozen=True, kw_only=True)
class Latest:
    """The newest point of a metric."""

    value: float
    step: int
    time: float
    """Unix time, seconds."""


class AzureMLBackend:
    """Jobs in an Azure ML workspace."""

    def __init__(self, *, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._clients: dict[Address, Client] = {}

    def render(self, job: JobSpec) -> str:
        """The official command job as YAML, with secret values taken out; ``az ml job create`` takes the rest."""
        return prepare(job).text()

    def submit(self, job: JobSpec) -> Submission:
        """Send the job once; a job of the same intent that is there already is taken for it.

        Raises:
            PlanError: Azure ML would get it wrong, or the code holds a secret.
            BackendError: refused for certain.
            UnknownOutcomeError: it may have been accepted.
        """
        prepared = prepare(job)
        address = resolve_address(options_of(job))
        known.keep(job.name, address, document=job.document, plan=job.plan)
        client = self._client(address)
        from launcher.backends.azureml.assets import make_ready

        ready = partial(make_ready, client, prepared)
        outcome = submit_once(client, job.name, prepared.fingerprint, ready, self._patience)
        return _submission(outcome.job, was_there=outcome.was_there)

    def resubmit(self, handle: str) -> Submission:
        """Send the next attempt of a run that has ended; it continues from the newest checkpoint.

        Raises:
            BackendError: the run has not ended, or the attempt is refused.
            UnknownOutcomeError: it may have been accepted.
        """
        from launcher.backends.azureml.attempts import send_next

        client, name = self._reach(handle)
        earlier = _found(client.find_job(name), handle)
        if state_of(earlier.state) not in TERMINAL:
            raise BackendError(
                f"{handle} is {earlier.state}: two attempts must not write to one folder",
                suggestion=f"launcher cancel {handle}",
                code="azureml.running",
            )
        outcome = send_next(client, earlier)
        return _submission(outcome.job, was_there=outcome.was_there)

    def find(self, handle: str) -> Submission | None:
        """The submission of a handle, if the service has it: what ``reconcile`` asks."""
        client, name = self._reach(handle)
        found = client.find_job(name)
        return _submission(found) if found else None

    def status(self, handle: str) -> RunStatus:
        """Where the run stands, and why: the service's error, what it waits for, or what its state means."""
        client, name = self._reach(handle)
        job = _found(client.find_job(name), handle)
        details = client.run_details(name)
        return RunStatus(
            handle=handle,
            state=state_of(job.state),
            reason=reason(job.state, details),
            exit_code=exit_code(details),
        )

    def logs(self, handle: str, *, rank: int | None = None, follow: bool = False) -> Iterator[str]:
        """Lines of one rank's log, or of all ranks, each line prefixed; ends when the run ends."""
        from launcher.backends.azureml.logs import tail

        client, name = self._reach(handle)
        _found(client.find_job(name), handle)
        ranks = None if rank is None else frozenset({rank})
        return tail(lambda: client.run_details(name) or {}, name=name, ranks=ranks, follow=follow)

    def log_tails(self, handle: str, *, most_bytes: int) -> dict[int, list[str]]:
        """Rank -> the end of its log, in lines."""
        from launcher.backends.azureml.logs import last_lines, rank_logs

        client, name = self._reach(handle)
        details = client.run_details(name) or {}
        return last_lines(rank_logs(details.get("logFiles") or {}), most_bytes=most_bytes)

    def metrics(self, handle: str) -> dict[str, Latest]:
        """The latest value of every metric of the run; empty before the first one."""
        client, name = self._reach(handle)
        first_attempt = f"{name.rpartition('-')[0]}-1"  # a later attempt goes on with the first one's MLflow run
        found = [_latest(client, run) for run in dict.fromkeys((name, first_attempt))]
        return max(found, key=lambda points: max((point.time for point in points.values()), default=0.0))

    def cancel(self, handle: str) -> RunStatus:
        """Ask the service to end the run; harmless on one that has ended."""
        client, name = self._reach(handle)
        before = self.status(handle)
        if before.is_terminal:
            return before
        client.cancel_job(name)
        return self.status(handle)

    def output(self, handle: str, name: str = RUN_OUTPUT) -> Folder:
        """The folder of one of the run's outputs.

        Raises:
            NoSuchRunError: there is no such run.
            BackendError: the run has no such output.
        """
        from launcher.backends.azureml.storage import open_folder

        client, run = self._reach(handle)
        outputs = _found(client.find_job(run), handle).document.get("outputs") or {}
        if name not in outputs:
            raise BackendError(f"{handle} has no output {name}", allowed=", ".join(outputs), code="azureml.output")
        return open_folder(client, outputs[name]["uri"])

    def runs(self) -> Iterator[RunStatus]:
        """Everybody's runs that launcher has sent to the workspace, newest first."""
        ours = (job for job in self.client().jobs() if FINGERPRINT in job.properties)
        return (RunStatus(handle=f"azureml:{job.name}", state=state_of(job.state)) for job in ours)

    def client(self) -> Client:
        """The workspace this machine uses, when no run says which."""
        return self._client(resolve_address())

    def register_model(self, handle: str, name: str, *, step: int | None = None) -> RegisteredModel:
        """Register a checkpoint of the run as the next version of a model, with recipe, plan and figures.

        Raises:
            NoSuchRunError: there is no such run.
            BackendError: it has no such checkpoint, or the service refuses.
        """
        from launcher.backends.azureml.models import register

        client, run = self._reach(handle)
        job, newest = _found(client.find_job(run), handle), self.metrics(handle)
        figures = {name: f"{point.value:.6g}" for name, point in newest.items() if name in _KEPT_FIGURES}
        return register(client, job, name, step=step, figures=figures)

    def links(self, handle: str) -> dict[str, str]:
        """Where to look at the run: the studio's page, and its MLflow server."""
        client, name = self._reach(handle)
        job = _found(client.find_job(name), handle)
        server = client.workspace["properties"].get("mlFlowTrackingUri") or ""
        return {"studio": job.studio_url or "", "mlflow": f"{server} (run {name})"}

    def checkpoints(self, handle: str) -> str:
        """The folder of a run's checkpoints, for the run that continues it.

        Raises:
            NoSuchRunError: there is no such run.
            UsageError: it still runs.
            RunFailedError: it left no checkpoint.
        """
        client, name = self._reach(handle)
        job = _found(client.find_job(name), handle)
        if state_of(job.state) not in TERMINAL:
            raise UsageError(
                f"{handle} is {job.state}: two runs must not continue the same one",
                suggestion=f"launcher cancel {handle}",
                code="resume.running",
            )
        root = str(job.document["outputs"][RUN_OUTPUT]["uri"])
        paths = [blob.path for blob in self.output(handle).files()]
        if any(path.startswith("step-") for path in paths):  # checkpoint.directory names the folder itself
            return root
        if not any(path.startswith("checkpoints/step-") for path in paths):
            raise RunFailedError(
                f"{handle} left no checkpoint",
                keys=("checkpoint.interval_steps",),
                suggestion="checkpoint.interval_steps=100 saves as the run goes",
                code="resume.no_checkpoint",
            )
        return f"{root}/checkpoints"

    def job_document(self, handle: str) -> dict[str, Any]:
        """The run's job.json, as it was sent.

        Raises:
            NoSuchRunError: there is no such run.
            BackendError: it was not submitted by launcher.
        """
        from launcher.backends.azureml.attempts import read_job_file

        client, name = self._reach(handle)
        outputs = _found(client.find_job(name), handle).document.get("outputs") or {}
        return read_job_file(client, str(outputs.get(RUN_OUTPUT, {}).get("uri")), name)

    def _reach(self, handle: str) -> tuple[Client, str]:
        name = parse_handle(handle)[1]
        return self._client(resolve_address(known=known.known_address(name))), name

    def _client(self, address: Address) -> Client:
        if address not in self._clients:
            from launcher.backends.azureml.client import Client

            self._clients[address] = Client(address, self._patience)
        return self._clients[address]


def _latest(client: Client, run: str) -> dict[str, Latest]:
    points = client.mlflow("runs/get", run_id=run).get("run", {}).get("data", {}).get("metrics") or ()
    return {
        point["key"]: Latest(
            value=float(point["value"]), step=int(point.get("step") or 0), time=int(point["timestamp"]) / 1000
        )
        for point in points
    }


def _submission(job: JobView, *, was_there: bool = True) -> Submission:
    return Submission(
        handle=f"azureml:{job.name}",
        url=job.studio_url,
        submitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        was_there=was_there,
        state=state_of(job.state),
    )


def _found(job: JobView | None, handle: str) -> JobView:
    if job is None:
        raise NoSuchRunError(f"the workspace has no run {handle}", suggestion="launcher list", code="no_such_run")
    return job
