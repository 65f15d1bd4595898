"""The local backend: submit, status, logs and cancel of runs on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.backends import parse_handle
from launcher.backends.backend import RunStatus, Submission
from launcher.backends.local.command import local_command, runs_trainer
from launcher.backends.local.folder import Launch, RunFolder
from launcher.backends.local.ranks import kill_leftovers
from launcher.backends.local.script import render_script
from launcher.backends.local.state import RunState, read_state, write_state
from launcher.backends.local.tail import Tail
from launcher.errors import BackendError, NoSuchRunError, UsageError
from launcher.home import runs_folder
from launcher.job.build import with_attempt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.job.spec import JobSpec

_SUPERVISOR = "launcher.backends.local.supervisor"
_POLL_SECONDS = 0.1
_GRACE_SECONDS = 30.0
"""Azure ML and spot VMs give about as long (learn.microsoft.com, Scheduled Events: 30 s before a preemption)."""
_ENDING_SECONDS = 30.0
"""Beyond the grace, for the supervisor to end what will not leave."""


class LocalBackend:
    """Processes on this machine."""

    def __init__(self, *, grace_seconds: float = _GRACE_SECONDS) -> None:
        self._grace_seconds = grace_seconds

    def render(self, job: JobSpec) -> str:
        """A shell script with each rank's command and environment; it can be run as it is."""
        folder = RunFolder(runs_folder() / job.name)
        return render_script(job, self._launch(job, folder), folder)

    def submit(self, job: JobSpec) -> Submission:
        """Start the job under a supervisor that outlives this process.

        The attempt counts up until its name is free: a run's folder is never written twice.

        Raises:
            BackendError: the folder cannot be made, the script is missing, or the supervisor does not start.
        """
        _refuse_what_this_machine_cannot(job)
        self.render(job)  # whatever its command lacks here is told before a folder is made
        job, folder = _reserve(job)
        _write_inputs(folder, job, self._launch(job, folder))
        submitted = time.time()
        write_state(folder.state, RunState(times={"NotStarted": submitted}))
        _start_supervisor(folder)
        return Submission(
            handle=f"local:{job.name}",
            url=folder.path.as_uri(),
            submitted_at=datetime.fromtimestamp(submitted, UTC).isoformat(timespec="seconds"),
        )

    def status(self, handle: str) -> RunStatus:
        """Where the run stands; one whose supervisor is gone is Failed, and what it left running is ended."""
        folder = run_folder(handle)
        state = read_state(folder.state)
        if not state.is_terminal:
            state = _bury_if_dead(folder)
        if not state.is_terminal and folder.cancel.exists():
            state = replace(state, state="CancelRequested")
        return RunStatus(handle=handle, state=state.state, reason=state.reason, exit_code=state.exit_code)

    def logs(self, handle: str, *, rank: int | None = None, follow: bool = False) -> Iterator[str]:
        """Lines of one rank's log, or of all ranks, each line prefixed; ends when the run ends."""
        folder = run_folder(handle)
        world_size = folder.read_launch().world_size
        if rank is not None and rank not in range(world_size):
            raise UsageError(f"there is no rank {rank}", allowed=f"0 to {world_size - 1}", code="usage.rank")
        chosen = range(world_size) if rank is None else (rank,)
        tails = {f"[rank {number}] " if rank is None else "": Tail(folder.log(number)) for number in chosen}
        return self._lines(handle, tails, follow=follow)

    def cancel(self, handle: str) -> RunStatus:
        """End the run; ranks have the grace to write a checkpoint. Returns when nothing is left running."""
        folder = run_folder(handle)
        deadline = time.monotonic() + folder.read_launch().grace_seconds + _ENDING_SECONDS
        while not (status := self.status(handle)).is_terminal:
            _ask_to_end(folder)
            if time.monotonic() > deadline:
                _signal_supervisor(folder, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        return status

    def _launch(self, job: JobSpec, folder: RunFolder) -> Launch:
        return Launch(
            command=local_command(job, folder),
            folder=job.snapshot.root,
            variables=job.environment_variables,
            world_size=job.world_size,
            processes_per_node=job.processes_per_node,
            needs_completion=runs_trainer(job),
            max_restarts=job.max_restarts,
            timeout_seconds=job.timeout_seconds,
            hang_timeout_seconds=job.hang_timeout_seconds,
            grace_seconds=self._grace_seconds,
        )

    def _lines(self, handle: str, tails: dict[str, Tail], *, follow: bool) -> Iterator[str]:
        while True:
            ended = not follow or self.status(handle).is_terminal
            for prefix, tail in tails.items():
                for line in tail.last() if ended else tail.lines():
                    yield prefix + line
            if ended:
                return
            time.sleep(_POLL_SECONDS)


def run_folder(handle: str) -> RunFolder:
    """The folder of a local run.

    Raises:
        NoSuchRunError: there is none.
    """
    backend, name = parse_handle(handle)
    folder = RunFolder(runs_folder() / name)
    if backend != "local" or not folder.launch.is_file():
        raise NoSuchRunError(f"no run {handle} in {runs_folder()}", suggestion="launcher list", code="no_such_run")
    return folder


def _refuse_what_this_machine_cannot(job: JobSpec) -> None:
    script = Path(job.snapshot.root, job.command[1]) if job.command[0] == "python" else None
    if script is not None and script.suffix == ".py" and not script.is_file():
        raise BackendError(f"there is no script {script}", keys=("entry.script",), code="backend.script")
    if job.device == "gpu" and job.nodes > 1:
        raise BackendError(
            f"{job.nodes} nodes with GPUs are more than this machine",
            keys=("cluster.instance_count",),
            allowed="1 on backend local (on local_cpu any number: all ranks share this machine)",
            code="backend.nodes",
        )


def _reserve(job: JobSpec) -> tuple[JobSpec, RunFolder]:
    """The first attempt from ``job.attempt`` on whose folder is not there yet, and that folder."""
    try:
        runs_folder().mkdir(parents=True, exist_ok=True)
        while True:
            folder = RunFolder(runs_folder() / job.name)
            with suppress(FileExistsError):
                folder.path.mkdir(mode=0o700)
                return job, folder
            job = with_attempt(job, job.attempt + 1)
    except OSError as error:
        raise BackendError(
            f"cannot make a run folder in {runs_folder()}: {error.strerror}",
            suggestion="set LAUNCHER_HOME to a folder you can write",
            code="backend.home",
        ) from error


def _write_inputs(folder: RunFolder, job: JobSpec, launch: Launch) -> None:
    folder.logs.mkdir()
    folder.output.mkdir()
    documents = {folder.job: job.document, folder.plan: job.plan, folder.recipe: job.document["recipe"]}
    for path, document in documents.items():
        path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    folder.write_launch(launch)


def _start_supervisor(folder: RunFolder) -> None:
    """A detached process that inherits the folder's lock, so that there is no moment at which nobody holds it.

    ``-P``: a ``json.py`` in the working directory is no concern of the supervisor's.
    """
    environment = {name: value for name, value in os.environ.items() if name != "LAUNCHER_RUN"}
    with folder.held() as lock, (folder.logs / "supervisor.log").open("ab") as log:
        done = subprocess.run(
            (sys.executable, "-P", "-m", _SUPERVISOR, str(folder.path)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
            pass_fds=() if lock is None else (lock,),
            check=False,
        )
    if done.returncode:
        raise BackendError(f"the supervisor does not start; see {log.name}", code="backend.supervisor")


def _bury_if_dead(folder: RunFolder) -> RunState:
    """The state, made final if no supervisor holds the folder any more."""
    with folder.held() as lock:
        state = read_state(folder.state)
        if lock is None or state.is_terminal:
            return state
        kill_leftovers(folder)
        was_asked = folder.cancel.exists()
        ended = replace(
            state,
            state="Canceled" if was_asked else "Failed",
            reason="canceled" if was_asked else "supervisor died",
            times={**state.times, "Canceled" if was_asked else "Failed": time.time()},
        )
        write_state(folder.state, ended)
        return ended


def _ask_to_end(folder: RunFolder) -> None:
    """Leave word for the supervisor, which may not even have started; on a full disk, a signal must do."""
    try:
        folder.cancel.touch()
    except OSError:
        _signal_supervisor(folder, signal.SIGTERM)


def _signal_supervisor(folder: RunFolder, number: signal.Signals) -> None:
    """To the supervisor, if one holds the folder (else its number may be another process by now)."""
    supervisor = read_state(folder.state).supervisor
    with folder.held() as lock, suppress(ProcessLookupError):
        if lock is None and supervisor is not None:
            os.kill(supervisor, number)
