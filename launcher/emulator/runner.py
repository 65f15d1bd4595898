"""Runs the jobs that were accepted: real processes of this machine, from NotStarted to their end."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from launcher.emulator import capacity
from launcher.emulator.container import Folders, bind, filled, make_home, output_uri, variables
from launcher.emulator.lifetime import dies_with
from launcher.emulator.mounts import NotThereError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.emulator.mounts import Mounts
    from launcher.emulator.workspace import Job, Workspace

_POLL_SECONDS = 0.05
_LOG_SECONDS = 0.3
_MOUNT_SECONDS = 2.0
_AFTER_FAILURE_SECONDS = 2.0
"""How long the other ranks may go on when one has failed."""
_PORTS = range(20_000, 32_000)
"""Below Linux's ephemeral ports, which any outgoing connection may take before rank 0 listens."""
_PREEMPTED = {"code": "JobPreempted", "message": "The job was preempted: its low priority nodes were evicted."}
_TIMED_OUT = {"code": "JobTimedOut", "message": "The job exceeded its time limit and was canceled."}


class Runner:
    """A thread for every job that has not ended."""

    def __init__(self, workspace: Workspace, mounts: Mounts, folder: Path, *, mlflow_uri: Callable[[], str]) -> None:
        self._workspace = workspace
        self._mounts = mounts
        self._folder = folder
        self._mlflow_uri = mlflow_uri
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()

    def start(self, job: Job) -> None:
        """Take a job in hand."""
        thread = threading.Thread(target=self._live, args=(job,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """End every job at once; nothing is left running."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)

    def _live(self, job: Job) -> None:
        """From accepted to ended. A defect of the emulator ends the job as the service's own failure would."""
        try:
            self._run(job)
        except NotThereError as error:
            message = f"Failed to mount the inputs of the job (data-capability): {error}"
            self._workspace.enter(job, "Failed", error={"code": "UserError", "message": message})
        except Exception as error:
            self._workspace.enter(job, "Failed", error={"code": "SystemError", "message": repr(error)})
            raise

    def _run(self, job: Job) -> None:
        self._workspace.enter(job, "Starting")
        if not self._admit(job):
            self._workspace.enter(job, "Canceled")
            return
        folders = Folders(root=self._folder / job.name)
        bound = self._prepare(job, folders)
        run = _Processes(job, folders)
        if job.wants_end is None:
            self._workspace.enter(job, "Running")
            self._start_ranks(job, folders, bound, run)
            self._attend(job, run)
        self._finish(job, folders, run)

    def _admit(self, job: Job) -> bool:
        """Wait for quota and capacity; False if the job is cancelled meanwhile."""
        with self._workspace.changed:
            while not self._stopping.is_set() and job.wants_end is None:
                lacking = "; ".join(capacity.shortage(job, self._workspace))
                if not lacking:
                    self._workspace.enter(job, "Preparing")
                    return True
                if job.state != "Queued":
                    self._workspace.enter(job, "Queued")
                job.waits_for = lacking
                self._workspace.changed.wait(0.5)
        return False

    def _prepare(self, job: Job, folders: Folders) -> dict[str, dict[str, str]]:
        """The code on every node, the data where the job expects it."""
        self._stopping.wait(self._workspace.settings.preparing_seconds)
        bound = bind(job, self._mounts)
        shutil.rmtree(folders.root, ignore_errors=True)
        for node in range(job.nodes):
            self._fetch_code(job, folders.node(node))
        make_home(folders.root / "home", self._workspace.settings.python)
        (folders.root / "logs").mkdir(parents=True)
        return bound

    def _fetch_code(self, job: Job, target: Path) -> None:
        target.mkdir(parents=True)
        code = (job.properties.get("codeId") or "").partition(f"/workspaces/{self._workspace.settings.workspace}/")[2]
        if code:
            uri = self._workspace.resources[code.lower()]["properties"]["codeUri"]
            container, path = self._mounts.place(uri)
            self._mounts.download(container, path, target)

    def _start_ranks(self, job: Job, folders: Folders, bound: dict[str, dict[str, str]], run: _Processes) -> None:
        port, command = _free_port(), filled(job.properties["command"], bound)
        for rank in range(job.nodes * job.processes_per_node):
            environment = variables(
                job,
                self._workspace.settings,
                rank=rank,
                port=port,
                bound=bound,
                home=folders.root / "home",
                mlflow_uri=self._mlflow_uri(),
            )
            run.start(rank, command, environment)

    def _attend(self, job: Job, run: _Processes) -> None:
        """Until every process has ended, or the job must end."""
        deadline = time.monotonic() + _timeout_seconds(job)
        next_logs = next_mount = 0.0
        while run.goes_on():
            now = time.monotonic()
            if job.wants_end or now > deadline or self._stopping.is_set():
                job.error = job.error or (_TIMED_OUT if now > deadline and not job.wants_end else None)
                break
            if now >= next_logs:
                self._store_logs(job, run)
                next_logs = now + _LOG_SECONDS
            if now >= next_mount:
                self._flush(job, only_small=True)
                next_mount = now + _MOUNT_SECONDS
            time.sleep(_POLL_SECONDS)
        was_ended = run.failure is None
        run.end(grace_seconds=self._grace_seconds() if was_ended else _AFTER_FAILURE_SECONDS)

    def _finish(self, job: Job, folders: Folders, run: _Processes) -> None:
        was_asked = job.wants_end
        if was_asked is None:
            self._workspace.enter(job, "Finalizing")
        self._store_logs(job, run)
        self._flush(job)
        for node in range(job.nodes):
            for name in ("outputs", "logs"):
                self._mounts.store_artifacts(job, folders.node(node) / name, name)
        if was_asked == "preempt":
            self._workspace.enter(job, "Failed", error=_PREEMPTED)
        elif was_asked or job.error or self._stopping.is_set():
            self._workspace.enter(job, "Canceled")
        elif run.failure is not None:
            self._workspace.enter(job, "Failed", error=_user_error(job, *run.failure))
        else:
            self._workspace.enter(job, "Completed")

    def _grace_seconds(self) -> float:
        return 0.0 if self._stopping.is_set() else self._workspace.settings.notice_seconds

    def _store_logs(self, job: Job, run: _Processes) -> None:
        for rank, content in run.new_logs():
            self._mounts.store_log(job, log_path(job, rank), content)

    def _flush(self, job: Job, *, only_small: bool = False) -> None:
        for name, value in (job.properties.get("outputs") or {}).items():
            if name != "default":
                self._mounts.flush(output_uri(job, name, value), only_small=only_small)


class _Processes:
    """The processes of one job."""

    def __init__(self, job: Job, folders: Folders) -> None:
        self._job = job
        self._folders = folders
        self._processes: list[subprocess.Popen[bytes]] = []
        self._sizes: dict[int, int] = {}
        self.failure: tuple[int, int] | None = None
        """Rank and exit code (128 + signal) of the first rank that failed by itself."""

    def start(self, rank: int, command: str, environment: dict[str, str]) -> None:
        """Start one rank in a session of its own; it dies with the emulator."""
        node = rank // self._job.processes_per_node
        with self._folders.log(rank).open("wb") as log:
            process = subprocess.Popen(
                ("/bin/bash", "-c", command),
                cwd=self._folders.node(node),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=dies_with(os.getpid()),
            )
        self._processes.append(process)

    def goes_on(self) -> bool:
        """Whether some rank still runs and none has failed; the first failure is remembered."""
        codes = [process.poll() for process in self._processes]
        bad = [(rank, code) for rank, code in enumerate(codes) if code]
        if bad and self.failure is None:
            rank, code = bad[0]
            self.failure = (rank, code if code > 0 else 128 - code)
        return self.failure is None and None in codes

    def end(self, *, grace_seconds: float) -> None:
        """SIGTERM to all, then SIGKILL to what is left, children included."""
        for process in self._processes:
            _signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while any(process.poll() is None for process in self._processes) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        for process in self._processes:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()

    def new_logs(self) -> list[tuple[int, bytes]]:
        """Whole logs that have grown since the last call."""
        grown = []
        for rank in range(len(self._processes)):
            size = self._folders.log(rank).stat().st_size
            if size != self._sizes.get(rank):
                self._sizes[rank] = size
                grown.append((rank, self._folders.log(rank).read_bytes()))
        return grown


def log_path(job: Job, rank: int) -> str:
    """Where the service keeps what a rank prints."""
    if job.nodes * job.processes_per_node == 1:
        return "user_logs/std_log.txt"
    return f"user_logs/std_log_process_{rank:02d}.txt"


def _user_error(job: Job, rank: int, code: int) -> dict[str, str]:
    message = (
        f"Execution failed. User process 'python' exited with status code {code}. Please check log file "
        f"'{log_path(job, rank)}' for error details."
    )
    return {"code": "UserError", "message": message}


def _timeout_seconds(job: Job) -> float:
    """``limits.timeout``, an ISO 8601 duration such as PT3600S or P1DT2H; without one the service's 21 days."""
    text = (job.properties.get("limits") or {}).get("timeout") or "P21D"
    amounts = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?", text)
    if amounts is None:
        return 21 * 86400.0
    return sum(float(amount or 0) * unit for amount, unit in zip(amounts.groups(), (86400, 3600, 60, 1), strict=True))


def _free_port() -> int:
    for port in random.SystemRandom().sample(_PORTS, k=200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port for rank 0")


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
