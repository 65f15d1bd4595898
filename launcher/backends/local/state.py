"""``state.json``: where a local run stands, written by its supervisor alone."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from launcher.backends.backend import TERMINAL

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.backends.backend import State

STATE_SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class RunState:
    """Where a run stands, in Azure ML's words."""

    schema_version: int = STATE_SCHEMA_VERSION
    state: State = "NotStarted"
    reason: str | None = None
    exit_code: int | None = None
    """Of the first rank that failed; 128 + signal when a signal ended it; 124 after a time-out."""
    restarts: int = 0
    """Times all ranks were started again."""
    supervisor: int | None = None
    """Process id."""
    ranks: dict[str, int] = field(default_factory=dict)
    """Process id of each rank (the keys are text in JSON)."""
    times: dict[str, float] = field(default_factory=dict)
    """When each state was first entered, Unix seconds."""

    @property
    def is_terminal(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in TERMINAL


def read_state(path: Path) -> RunState:
    """The state in ``path``; ``NotStarted`` when there is none that can be read."""
    try:
        values = json.loads(path.read_bytes())
        return RunState(**{name: values[name] for name in RunState.__dataclass_fields__ if name in values})
    except (OSError, ValueError, TypeError):
        return RunState()


def write_state(path: Path, state: RunState) -> None:
    """Replace ``path`` at once: a reader sees the old state or the new one.

    On a full disk the old file is written over instead: its blocks are there already. If even that is refused, it is
    said on standard error, and the run goes on.
    """
    text = json.dumps(asdict(state), indent=1).encode()
    try:
        _replace(path, text)
    except OSError as refusal:
        with suppress(OSError), path.open("r+b") as file:
            file.write(text.ljust(path.stat().st_size))
        with suppress(OSError):  # standard error may be a log on the same disk
            sys.stderr.write(f"{path}: {refusal.strerror}; written over in place\n")


def _replace(path: Path, text: bytes) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
