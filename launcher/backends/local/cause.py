"""Why ranks died: the one that died first of its own, and the last words in its log."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.backends.consequence import CONSEQUENCE
from launcher.backends.local.tail import Tail

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from launcher.backends.local.folder import RunFolder
    from launcher.backends.local.ranks import Rank

_PREFIX = re.compile(r"^\[rank\d+\]:\s?")
"""torch puts ``[rank0]: `` before each line of an uncaught traceback."""
_ADDRESS_IN_USE = ("EADDRINUSE", "address already in use", "Address already in use")
_SIGNALLED = 128
"""Plus the signal's number: the exit code of a rank that a signal ended, as shells have it."""
_LONGEST = 300
"""Of a reason, in characters."""
_LAST_BYTES = 1 << 20
"""Of a log, that may hold why a rank died."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """The death that brought the others down."""

    rank: int
    exit_code: int
    """128 + signal when a signal ended the rank."""
    reason: str
    is_consequence: bool
    """Whether the rank only says that another one is gone."""


def cause_of(ranks: Sequence[Rank], folder: RunFolder) -> Cause:
    """The death among ``ranks`` that is no consequence of another's.

    A rank that lives on may be the guilty one: it raised, its peers noticed at once, and it is still winding up. So a
    living rank's traceback counts before a dead rank's complaint about its peers. A rank that a signal ended counts
    before all of them: nothing that its peers say can have sent that signal.
    """
    causes = [_death(rank, folder) for rank in ranks if rank.process.returncode]
    causes += [said for rank in ranks if not rank.process.returncode and (said := _complaint(rank, folder))]
    return min(causes, key=lambda cause: (cause.is_consequence, cause.exit_code < _SIGNALLED, cause.rank))


def port_was_taken(ranks: Iterable[Rank], folder: RunFolder) -> bool:
    """Whether a rank said that the rendezvous port belongs to somebody else."""
    said = (line for rank in ranks for line in _said(rank, folder))
    return any(text in line for line in said for text in _ADDRESS_IN_USE)


def _death(rank: Rank, folder: RunFolder) -> Cause:
    code = rank.process.returncode
    how = f"exited with code {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
    lines = _said(rank, folder)
    said = exception_in(lines) or _last(lines, beginning="error: ") or _last(lines)
    reason = f"rank {rank.rank} {how}" + (f": {said[:_LONGEST]}" if said else "")
    complains = CONSEQUENCE.search(said) is not None and (code >= 0 or code == -signal.SIGABRT)
    return Cause(
        rank=rank.rank, exit_code=code if code >= 0 else _SIGNALLED - code, reason=reason, is_consequence=complains
    )


def _last(lines: Sequence[str], *, beginning: str = "") -> str:
    """The last line that says anything, and begins so."""
    return next((line.strip() for line in reversed(lines) if line.strip() and line.startswith(beginning)), "")


def _complaint(rank: Rank, folder: RunFolder) -> Cause | None:
    """What a living rank has raised; None if nothing."""
    said = exception_in(_said(rank, folder))
    if not said:
        return None
    reason = f"rank {rank.rank} raised {said[:_LONGEST]}"
    return Cause(rank=rank.rank, exit_code=1, reason=reason, is_consequence=CONSEQUENCE.search(said) is not None)


def _said(rank: Rank, folder: RunFolder) -> list[str]:
    """The end of what the rank's log holds since it was started this time."""
    log = folder.log(rank.rank)
    offset = max(rank.log_offset, log.stat().st_size - _LAST_BYTES)
    return [_PREFIX.sub("", line) for line in Tail(log, offset=offset).last()]


def exception_in(lines: Sequence[str]) -> str:
    """The exception that ends the last traceback in ``lines``; empty without one."""
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    after = lines[starts[-1] + 1 :] if starts else []
    return next((line.strip() for line in after if line and not line[0].isspace()), "")


def _signal_name(number: int) -> str:
    name = signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"
    return f"{name} (kill -9, or the kernel when memory ran out)" if number == signal.SIGKILL else name
