"""How long Azure is waited for: one place for every time-out, pause and deadline."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Seconds, and by which clock they are counted.

    azure-core's own are 300 s to connect and 300 s to read, four times over: a silent server would hold one call for
    twenty minutes (measured with azure-core 1.41).
    """

    connect_seconds: float = 10
    read_seconds: float = 60
    retries: int = 4
    """Of one reading call, by the SDK's policy; it obeys Retry-After."""
    backoff_seconds: float = 0.4
    """Before the second retry; doubles."""
    longest_pause_seconds: float = 30
    settle_seconds: float = 300
    """From sending a job until its outcome is called unknown."""
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def pauses(self, seconds: float) -> Iterator[float]:
        """Growing pauses with jitter that end after ``seconds``; at least one."""
        deadline, pause = self.now() + seconds, self.backoff_seconds
        while True:
            left = deadline - self.now()
            yield max(0.0, min(pause * random.uniform(0.75, 1.25), left))
            if left <= 0:
                return
            pause = min(pause * 2, self.longest_pause_seconds)
