"""Runs on this machine: one process per planned rank, in a folder per run, under a supervisor of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.backends.local.backend import LocalBackend


def open_backend() -> LocalBackend:
    """The backend of this machine."""
    from launcher.backends.local.backend import LocalBackend

    return LocalBackend()
