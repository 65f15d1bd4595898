"""``training.profile``: which steps a profiler records."""

from __future__ import annotations

import re

_STEPS = re.compile(r"steps:(\d+)(?:-(\d+))?")


def profiled_steps(text: str) -> range | None:
    """The steps of ``steps:10-12`` (1-based, both included) or ``steps:10``; None when it is neither."""
    found = _STEPS.fullmatch(text)
    if found is None:
        return None
    first = int(found[1])
    last = int(found[2] or first)
    return range(first, last + 1) if 1 <= first <= last else None
