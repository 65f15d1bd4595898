"""The processes of a run: how a rank is started, and how all of them are ended with everything they started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from launcher.backends.local.folder import Launch, RunFolder

POLL_SECONDS = 0.05
MARK = "LAUNCHER_RUN"
"""Every process of a run carries the run's folder in this variable: it is how all of them are found again."""
_UNKILLABLE_SECONDS = 20
_DUMP_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1
"""prctl(2), linux/prctl.h."""
_PORTS = range(20_000, 32_000)
"""Below Linux's ephemeral ports (32768 on), which any outgoing connection may take before rank 0 listens."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One started rank."""

    rank: int
    process: subprocess.Popen[bytes]
    log_offset: int
    """Where in the log this start begins."""


def rank_variables(launch: Launch, rank: int, *, port: str, restarts: int = 0) -> dict[str, str]:
    """What torchrun would set for ``rank`` (torch/distributed/elastic/agent/server/local_elastic_agent.py).

    All nodes of the plan are this machine, so the address of rank 0 is the loopback's.
    """
    node, local_rank = divmod(rank, launch.processes_per_node)
    nodes = launch.world_size // launch.processes_per_node
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(launch.world_size),
        "LOCAL_WORLD_SIZE": str(launch.processes_per_node),
        "NODE_RANK": str(node),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(nodes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": str(restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(launch.max_restarts),
    }


def run_variables(launch: Launch, folder: RunFolder, outside: Mapping[str, str]) -> dict[str, str]:
    """What every rank gets beside its place; the recipe's own values win, then those ``outside``."""
    chosen = {
        "OMP_NUM_THREADS": str(max(1, cores() // launch.world_size)),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        **_loopback(),
    }
    kept = {name: value for name, value in chosen.items() if name not in outside}
    return kept | launch.variables | {MARK: str(folder.path)}


def _loopback() -> dict[str, str]:
    """Keeps gloo on this machine: left alone it looks up the host's name, which a laptop may not resolve."""
    interfaces = {name for _, name in socket.if_nameindex()}
    return next(({"GLOO_SOCKET_IFNAME": name} for name in ("lo", "lo0") if name in interfaces), {})


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_port() -> int:
    """A port nobody listens on now; another in every run, so that two runs never meet."""
    import random

    for port in random.SystemRandom().sample(_PORTS, k=200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    raise OSError(f"no free port from {_PORTS.start} to {_PORTS.stop}")


def start(launch: Launch, folder: RunFolder, rank: int, *, port: int, restarts: int) -> Rank:
    """Start one rank: a process group of its own, its log, and death if the supervisor dies."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC_")}
    place = rank_variables(launch, rank, port=str(port), restarts=restarts)
    with folder.log(rank).open("ab") as log:
        begins = log.tell()
        process = subprocess.Popen(
            launch.command,
            cwd=launch.folder,
            env=outside | run_variables(launch, folder, outside) | place,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_dies_with(os.getpid()),
        )
        return Rank(rank=rank, process=process, log_offset=begins)


def end(ranks: Sequence[Rank], folder: RunFolder, *, grace_seconds: float) -> None:
    """SIGTERM to every rank's process group, ``grace_seconds`` to leave, then SIGKILL to all that is left."""
    for rank in ranks:
        _signal_group(rank.process.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while _is_anyone_left(ranks, folder) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for rank in ranks:
        _signal_group(rank.process.pid, signal.SIGKILL)
        rank.process.wait()
    kill_leftovers(folder)


def _is_anyone_left(ranks: Sequence[Rank], folder: RunFolder) -> bool:
    """A rank, or a process beside it such as the one that tells MLflow how the run ended."""
    return any(rank.process.poll() is None for rank in ranks) or bool(processes_of(folder))


def kill_leftovers(folder: RunFolder) -> None:
    """SIGKILL whatever still carries the run's mark, and what it starts meanwhile, until nothing does.

    A process the kernel cannot end (waiting for a dead network disk) is given up after a while.
    """
    deadline = time.monotonic() + _UNKILLABLE_SECONDS
    while (pids := processes_of(folder)) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def processes_of(folder: RunFolder) -> tuple[int, ...]:
    """Living processes of the run, by their mark; none where there is no /proc to look in."""
    mark = f"{MARK}={folder.path}\0".encode()
    numbered = (entry for entry in _proc() if entry.name.isdecimal() and int(entry.name) != os.getpid())
    return tuple(int(entry.name) for entry in numbered if mark in _environment(entry))


def _proc() -> Iterable[Path]:
    proc = Path("/proc")
    return proc.iterdir() if proc.is_dir() else ()


def _environment(entry: Path) -> bytes:
    """The environment a process was started with; empty for a zombie, and for other people's."""
    try:
        return (entry / "environ").read_bytes() + b"\0"
    except OSError:
        return b""


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _dies_with(supervisor: int) -> Callable[[], None] | None:
    """Runs in the child before exec: the kernel kills the rank when the supervisor dies, however it dies."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def arrange() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)

    return arrange


def dump_stacks(ranks: Sequence[Rank]) -> None:
    """Have every rank write its stacks into its log: faulthandler does so on SIGABRT, even while the GIL is held."""
    for rank in ranks:
        _leave_no_core(rank.process.pid)
        _signal_group(rank.process.pid, signal.SIGABRT)
        _signal_group(rank.process.pid, signal.SIGCONT)
    time.sleep(_DUMP_SECONDS)


def _leave_no_core(process: int) -> None:
    """The stacks are wanted, not the memory of a whole rank on the disk."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            resource.prlimit(process, resource.RLIMIT_CORE, (0, 0))
