"""Rules of a team's own constants: known by name, and within their bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.calibration import HALF_WIDTH, LIMITS
from launcher.plan.rules.case import finding
from launcher.registry import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Finding
    from launcher.plan.rules.case import Case

WIDEST = 2.0
"""A half width beyond e^2 says nothing."""


def own_constants(case: Case) -> Iterator[Finding]:
    """A constant that is misspelt, or makes no sense, would leave the plan as it was, or spoil it."""
    limits = {**LIMITS, HALF_WIDTH: (0.0, WIDEST)}
    for name, value in case.recipe.calibration.items():
        key = f"calibration.{name}"
        if name not in limits:
            close = nearest(name, limits)
            allowed = ", ".join(close) or "the names that launcher calibrate writes"
            message = f"there is no constant {name!r}"
            yield finding("error", "calibration", message, key, allowed=allowed, edits=((f"{key}=null",),))
        elif not limits[name][0] <= value <= limits[name][1]:
            low, high = limits[name]
            message = f"{key} is {value:g}: beyond {low:g} to {high:g} it makes no sense"
            nearer = min(max(value, low), high)
            yield finding(
                "error", "calibration", message, key, allowed=f"{low:g} to {high:g}", edits=((f"{key}={nearer:g}",),)
            )
