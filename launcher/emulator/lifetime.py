"""Nothing the emulator starts outlives it, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def dies_with(emulator: int) -> Callable[[], None] | None:
    """Runs in the child before exec: the kernel kills it when the emulator dies, however it dies."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def arrange() -> None:
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, linux/prctl.h
        if os.getppid() != emulator:
            os._exit(1)

    return arrange
