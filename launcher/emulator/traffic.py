"""Every request the emulator saw: how many, and how many bytes were sent with them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launcher.emulator.messages import Request


class Traffic:
    """A record of requests, oldest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[dict[str, Any]] = []

    def saw(self, request: Request, status: int) -> None:
        """Record one request and what it was told (0: nothing)."""
        entry = {
            "method": request.method,
            "host": request.host,
            "path": request.path,
            "status": status,
            "bytes": len(request.body),
        }
        with self._lock:
            self._requests.append(entry)

    def document(self) -> dict[str, Any]:
        """All of them."""
        with self._lock:
            return {"requests": list(self._requests)}

    def clear(self) -> None:
        """Forget them."""
        with self._lock:
            self._requests.clear()
