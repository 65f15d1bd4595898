"""Why a run is where it is: the service's words, exit codes and all ranks' logs, as a class and a next step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.backends import backend_for, parse_handle
from launcher.backends.consequence import CONSEQUENCE
from launcher.backends.local.backend import run_folder
from launcher.runs.symptoms import INFRASTRUCTURE, OF_THE_RANKS, OF_THE_SERVICE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from launcher.backends.backend import RunStatus
    from launcher.runs.symptoms import Kind, Symptom

_PREFIX = re.compile(r"^\[rank\d+\]:\s?")
"""torch puts ``[rank0]: `` before each line of an uncaught traceback."""
_TRACEBACK = "Traceback (most recent call last)"
_KILLED, _TERMINATED = 137, 143
_TAIL_BYTES = 1 << 18
_EVIDENCE_LINES = 12


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """One run, explained."""

    handle: str
    state: str
    kind: Kind
    what: str
    """One sentence."""
    rank: int | None = None
    """The rank that failed first, as far as its log tells."""
    evidence: tuple[str, ...] = ()
    """Lines of that rank's log, or the service's error."""
    next: tuple[str, ...] = ()
    """What to do, most promising first."""

    @property
    def may_pass(self) -> bool:
        """Whether the same job may do better another time."""
        return self.kind in INFRASTRUCTURE


def diagnose(handle: str) -> Diagnosis:
    """The diagnosis of a run, from its backend's status and the ends of its ranks' logs.

    Raises:
        NoSuchRunError: there is no such run.
    """
    status = backend_for(parse_handle(handle)[0]).status(handle)
    return explain(status, log_tails(handle))


def explain(status: RunStatus, logs: Mapping[int, Sequence[str]]) -> Diagnosis:
    """The class of what happened. Pure.

    Args:
        status: Where the run stands.
        logs: Rank -> last lines of its log.
    """
    if not status.is_terminal or status.state == "Completed":
        return _not_failed(status)
    symptom = _first(OF_THE_SERVICE, status.reason or "")
    rank = _guilty_rank(logs, is_killed=status.exit_code == _KILLED)
    if symptom is None and rank is not None:
        found = _of_rank(logs[rank])
        if found is not None:
            return _diagnosis(status, found[0], rank=rank, evidence=found[1])
    if symptom is not None:
        return _diagnosis(status, symptom, rank=None, evidence=(status.reason or "",))
    return _by_exit_code(status, rank, logs)


def log_tails(handle: str) -> dict[int, list[str]]:
    """Rank -> the last quarter megabyte of its log, in lines."""
    backend, _ = parse_handle(handle)
    if backend != "local":
        from launcher.backends.azureml.backend import AzureMLBackend

        return AzureMLBackend().log_tails(handle, most_bytes=_TAIL_BYTES)
    folder = run_folder(handle)
    tails = {}
    for rank in range(folder.read_launch().world_size):
        if folder.log(rank).is_file():
            content = folder.log(rank).read_bytes()[-_TAIL_BYTES:]
            tails[rank] = content.decode("utf-8", "replace").splitlines()
    return tails


def last_traceback(lines: Sequence[str]) -> list[str]:
    """The last traceback in ``lines``, from its first line to the exception; empty without one."""
    clean = [_PREFIX.sub("", line) for line in lines]
    starts = [number for number, line in enumerate(clean) if line.startswith(_TRACEBACK)]
    if not starts:
        return []
    following = clean[starts[-1] :]
    end = next((n for n, line in enumerate(following[1:], start=1) if line and not line[0].isspace()), len(following))
    return following[: end + 1]


def _not_failed(status: RunStatus) -> Diagnosis:
    """Nothing broke: a run that waits says what for."""
    if status.state == "Completed":
        return Diagnosis(handle=status.handle, state=status.state, kind="completed", what="the run completed")
    waiting = _first(OF_THE_SERVICE, status.reason or "") if status.state == "Queued" else None
    return Diagnosis(
        handle=status.handle,
        state=status.state,
        kind=waiting.kind if waiting else "running",
        what=status.reason or f"the run is {status.state}",
        next=waiting.next if waiting else (f"launcher logs -f {status.handle}",),
    )


def _guilty_rank(logs: Mapping[int, Sequence[str]], *, is_killed: bool) -> int | None:
    """The rank whose own failure came first: one that does not merely complain that another is gone.

    A rank that was killed says nothing: then its peers' complaints tell of no rank at all.
    """
    failed = {rank: last_traceback(lines) or _errors(lines) for rank, lines in logs.items()}
    complains = {rank: CONSEQUENCE.search(said[-1]) is not None for rank, said in failed.items() if said}
    if not complains or (is_killed and all(complains.values())):
        return None
    return min(complains, key=lambda rank: (complains[rank], rank))


def _errors(lines: Sequence[str]) -> list[str]:
    """Lines that say what is wrong without a traceback: our own errors, and what a signal or a library leaves."""
    said = [line for line in lines if line.startswith("error: ") or _first(OF_THE_RANKS, line)]
    return said[-_EVIDENCE_LINES:]


def _of_rank(lines: Sequence[str]) -> tuple[Symptom, tuple[str, ...]] | None:
    """What a rank's log sounds like: its traceback before the rest, the latest line first."""
    traceback = last_traceback(lines)
    symptom = _first(OF_THE_RANKS, "\n".join(traceback))
    if symptom is not None:
        return symptom, tuple(traceback[-_EVIDENCE_LINES:])
    for line in reversed(lines):
        symptom = _first(OF_THE_RANKS, line)
        if symptom is not None:
            return symptom, (line.strip(),)
    return None


def _by_exit_code(status: RunStatus, rank: int | None, logs: Mapping[int, Sequence[str]]) -> Diagnosis:
    """What is left when no text is known: a signal, the user's own exception, or nothing."""
    handle, state, code = status.handle, status.state, status.exit_code
    traceback = last_traceback(logs[rank]) if rank is not None else []
    if state == "Canceled":
        return Diagnosis(handle=handle, state=state, kind="canceled", what=status.reason or "somebody canceled the run")
    if code == _KILLED and not traceback:
        return Diagnosis(
            handle=handle,
            state=state,
            kind="host_memory",
            what="a process was killed (exit code 137): by kill -9, or by the kernel when the node ran out of memory",
            rank=rank,
            next=("parallelism.offload_optimizer=none, fewer loader workers, or a VM size with more memory",),
        )
    if code == _TERMINATED and not traceback:
        return Diagnosis(
            handle=handle,
            state=state,
            kind="preempted",
            what="the ranks were told to end (exit code 143) and saved",
            next=(f"launcher submit --resume {handle}",),
        )
    evidence = tuple(traceback[-_EVIDENCE_LINES:] or _errors(logs[rank] if rank is not None else ()))
    if evidence:
        what = evidence[-1].strip()
        return Diagnosis(
            handle=handle,
            state=state,
            kind="user_code",
            what=what[:300],
            rank=rank,
            evidence=evidence,
            next=("mend the code; the same job would fail again", f"launcher logs --rank {rank} {handle}"),
        )
    return Diagnosis(
        handle=handle,
        state=state,
        kind="unknown",
        what=status.reason or "nothing that is known",
        next=(f"launcher logs {handle}", f"launcher open {handle}"),
    )


def _diagnosis(status: RunStatus, symptom: Symptom, *, rank: int | None, evidence: tuple[str, ...]) -> Diagnosis:
    return Diagnosis(
        handle=status.handle,
        state=status.state,
        kind=symptom.kind,
        what=symptom.what,
        rank=rank,
        evidence=tuple(line for line in evidence if line),
        next=tuple(line.replace("HANDLE", status.handle) for line in symptom.next),
    )


def _first(symptoms: Sequence[Symptom], text: str) -> Symptom | None:
    return next(_matching(symptoms, text), None)


def _matching(symptoms: Sequence[Symptom], text: str) -> Iterator[Symptom]:
    return (symptom for symptom in symptoms if symptom.pattern.search(text))
