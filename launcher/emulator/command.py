"""A command run inside an emulator: its output is its own, its exit code becomes ours."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

from launcher.emulator.emulator import emulate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from launcher.emulator.settings import Settings

_NOT_FOUND = 127
_SIGNALLED = 128


def run_inside(command: Sequence[str], settings: Settings, *, folder: Path | None = None) -> int:
    """Run ``command`` inside a fresh emulator and give back its exit code.

    Credentials of the caller's own (``AZURE_*``, ``ARM_*``, ``ACTIONS_*``) do not go in: nothing may reach Azure.
    """
    with emulate(settings, folder=folder) as emulator:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("AZURE", "ARM_", "ACTIONS_"))
        }
        try:
            process = subprocess.Popen(command, env=inherited | emulator.variables())
        except FileNotFoundError:
            return _NOT_FOUND
        return _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for it. Ctrl-C reaches it from the terminal; the emulator stays until it has made up its mind."""
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT,)}
    try:
        code = process.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return code if code >= 0 else _SIGNALLED - code
