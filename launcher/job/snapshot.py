"""Which code travels: the folder, its commit, and whether it was changed since."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from launcher.job.spec import Snapshot

if TYPE_CHECKING:
    from pathlib import Path

_GIT_SECONDS = 30
"""A git that waits for a network disk or a lock must not hold up a submission."""


def take_snapshot(root: Path) -> Snapshot:
    """The state of the checkout around ``root``; outside one, or without git, the commit is None."""
    folder = root.resolve()
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".") if commit else None
    return Snapshot(root=str(folder), commit=commit, is_dirty=bool(changes))


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints, stripped; None when it is missing, refuses, or is too slow."""
    command = ("git", "--no-optional-locks", "-C", str(folder), *arguments)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
