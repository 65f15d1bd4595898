"""Faults on request: what goes wrong, on which requests, how often. One fault is one line of JSON.

``{"method": "PUT", "path": "/jobs/", "kind": "reset_after", "times": 1}``

=============== =======================================================================================
status          answered with ``status`` before anything happens (429, 500, 503, 401, ...)
status_after    it happens, and is answered with ``status``
reset_before    the connection is reset before anything happens
reset_after     it happens, and the connection is reset before the answer
hang_before     nothing happens for ``seconds``, then the connection is reset
hang_after      it happens; the answer takes ``seconds`` and is then a reset
slow            the answer takes ``seconds``
garbage         nothing happens; the answer is 200 and an HTML page
garbage_after   it happens; the answer is 200 and an HTML page
empty_after     it happens; the answer is 200 with no body
half_after      it happens; half of the answer arrives
invisible       it happens; for ``seconds`` a GET of the same path says 404
=============== =======================================================================================
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from launcher.emulator.messages import Request

Kind = Literal[
    "status", "status_after", "reset_before", "reset_after", "hang_before", "hang_after", "slow", "garbage",
    "garbage_after", "empty_after", "half_after", "invisible",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
BEFORE: frozenset[Kind] = frozenset({"status", "reset_before", "hang_before", "garbage"})
"""Kinds that leave no trace in the service."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    kind: Kind
    method: str = "*"
    path: str = ""
    """Searched, as a regular expression, in ``HOST/PATH?QUERY``."""
    times: int = 1
    skip: int = 0
    """Matching requests that pass unharmed first."""
    status: int = 500
    code: str = "InjectedFault"
    message: str = "injected fault"
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def matches(self, request: Request) -> bool:
        """Whether this fault is for ``request``."""
        query = "&".join(f"{name}={value}" for name, value in request.query.items())
        target = f"{request.host}{request.path}?{query}"
        return self.method in {"*", request.method} and re.search(self.path, target) is not None


class FaultBox:
    """The faults still to come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[Fault, int]] = []
        self._invisible_until: dict[str, float] = {}
        self.hits: list[tuple[str, str, Kind]] = []
        """Method, path and kind of every fault that struck since the last ``clear``."""

    def add(self, document: dict[str, Any]) -> None:
        """Arm one fault.

        Raises:
            TypeError: an unknown field, or none of kind.
            ValueError: an unknown kind.
        """
        fault = Fault(**document)
        if fault.kind not in KINDS:
            raise ValueError(f"no fault is called {fault.kind!r}")
        with self._lock:
            self._waiting.append((fault, -fault.skip))

    def clear(self) -> None:
        """Nothing goes wrong from now on, and nothing has."""
        with self._lock:
            self._waiting.clear()
            self.hits.clear()
            self._invisible_until.clear()

    def strike(self, request: Request) -> Fault | None:
        """The first armed fault for ``request``, used up once."""
        with self._lock:
            for index, (fault, hits) in enumerate(self._waiting):
                if hits < fault.times and fault.matches(request):
                    self._waiting[index] = (fault, hits + 1)
                    if hits >= 0:
                        self.hits.append((request.method, request.path, fault.kind))
                        return fault
        return None

    def hide(self, path: str, seconds: float) -> None:
        """Let ``path`` not be found for a while."""
        with self._lock:
            self._invisible_until[path.lower()] = time.monotonic() + seconds

    def is_hidden(self, path: str) -> bool:
        """Whether a GET of ``path`` must say 404."""
        with self._lock:
            return time.monotonic() < self._invisible_until.get(path.lower(), 0.0)
