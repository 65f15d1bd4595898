"""Constants of a team's own stack, from its own runs: the shipped ones, moved as far as the runs ask for.

The best constants balance runs against what is shipped: each run's log error over 5 %, each constant's distance from
its shipped value over the standard deviation of its prior (``calibration.py``); errors beyond 6 % count linearly. Few
runs therefore move little, and only what they can tell. ``tests/published/fit.py`` does the same to the published rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import log, sqrt
from typing import TYPE_CHECKING, Any

from launcher.plan.calibration import LIMITS, Calibration, shipped
from launcher.plan.step_time import step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.plan.published_row import PublishedRow

    Vector = list[float]

ROW_ERROR = 0.05
"""Log error of a run that weighs as much as a constant one sigma off."""
LINEAR_FROM = 0.06
"""Log error from which a run counts linearly: one slow run shall not decide."""
NUDGE = 0.02
"""Of a sigma: the step of the numerical derivative."""
FELT = 1e-4
"""Log error that a sigma must move for a constant to be fitted at all."""
ROUNDS = 12
SIGMA = {each.name: float(each.metadata["sigma"]) for each in fields(Calibration)}
FOLDS = 5
COVERAGE = 0.8
"""Share of left-out runs the interval shall cover."""
NARROWEST = 0.02
"""Logarithmic half width below which no interval is claimed: runs repeat no better."""


@dataclass(frozen=True, kw_only=True)
class Refit:
    """What the runs taught."""

    moved: dict[str, float]
    """New values of the constants that the runs bear on."""
    before: float
    """Median |log error| of the runs under the shipped constants."""
    after: float
    """The same under the new ones."""
    left_out: float | None
    """The same of runs that were left out in turn; None below ``FOLDS`` runs."""
    half_width: float | None
    """Of an interval that covers 80 % of left-out runs; None as above."""


def refit(rows: Sequence[PublishedRow]) -> Refit:
    """Fit to ``rows``, which all have a step time."""
    start = shipped()
    found = _fitted(rows, start)
    errors = _left_out_errors(rows, start) if len(rows) >= FOLDS else []
    return Refit(
        moved={name: getattr(found, name) for name in LIMITS if getattr(found, name) != getattr(start, name)},
        before=_middle(_errors(rows, start)),
        after=_middle(_errors(rows, found)),
        left_out=_middle(errors) if errors else None,
        half_width=max(NARROWEST, sorted(map(abs, errors))[round(COVERAGE * (len(errors) - 1))]) if errors else None,
    )


def _left_out_errors(rows: Sequence[PublishedRow], start: Calibration) -> Vector:
    errors: Vector = []
    for fold in range(FOLDS):
        others = [row for number, row in enumerate(rows) if number % FOLDS != fold]
        errors += _errors(rows[fold::FOLDS], _fitted(others, start))
    return errors


def _fitted(rows: Sequence[PublishedRow], start: Calibration) -> Calibration:
    """Gauss-Newton steps, each within the bounds, for as long as they help."""
    names = [name for name in LIMITS if _is_felt(rows, start, name)]
    best, loss = start, _loss(rows, start, start, names)
    for _ in range(ROUNDS):
        change = _step(rows, best, start, names)
        for share in (1.0, 0.5, 0.25, 0.1):
            tried = _moved(best, {name: share * delta for name, delta in zip(names, change, strict=True)})
            lower = _loss(rows, tried, start, names)
            if lower < loss:
                break
        else:
            return best
        is_done, best, loss = loss - lower < 1e-4 * loss, tried, lower
        if is_done:
            break
    return best


def _is_felt(rows: Sequence[PublishedRow], constants: Calibration, name: str) -> bool:
    nudged = _moved(constants, {name: NUDGE})
    moves = zip(_errors(rows, nudged), _errors(rows, constants), strict=True)
    return max((abs(after - before) for after, before in moves), default=0.0) > FELT * NUDGE


def _step(rows: Sequence[PublishedRow], at: Calibration, start: Calibration, names: Sequence[str]) -> Vector:
    """The change, in sigmas, that solves (J'WJ + 1) x = -(J'W r + shift)."""
    errors = _errors(rows, at)
    slopes = []
    for name in names:
        nudged = _errors(rows, _moved(at, {name: NUDGE}))
        slopes.append([(after - before) / NUDGE / ROW_ERROR for after, before in zip(nudged, errors, strict=True)])
    weights = [1 / sqrt(1 + (error / LINEAR_FROM) ** 2) for error in errors]
    residuals = [weight * error / ROW_ERROR for weight, error in zip(weights, errors, strict=True)]
    matrix = [[_dot(left, right, weights) + (left is right) for right in slopes] for left in slopes]
    wanted = [-_dot(slope, residuals) - _shift(at, start, name) for slope, name in zip(slopes, names, strict=True)]
    return solved(matrix, wanted)


def _loss(rows: Sequence[PublishedRow], at: Calibration, start: Calibration, names: Sequence[str]) -> float:
    runs = sum(2 * LINEAR_FROM**2 * (sqrt(1 + (error / LINEAR_FROM) ** 2) - 1) for error in _errors(rows, at))
    return runs / ROW_ERROR**2 + sum(_shift(at, start, name) ** 2 for name in names)


def _errors(rows: Sequence[PublishedRow], constants: Calibration) -> Vector:
    """ln(predicted / measured) of each run."""
    return [log(step(row.workload, constants).seconds / (row.step_seconds or 1.0)) for row in rows]


def _shift(at: Calibration, start: Calibration, name: str) -> float:
    """Sigmas from the shipped value."""
    return float((getattr(at, name) - getattr(start, name)) / SIGMA[name])


def _moved(constants: Calibration, sigmas: dict[str, float]) -> Calibration:
    """Some constants moved by so many sigmas, within their bounds."""
    values: dict[str, Any] = {}
    for name, change in sigmas.items():
        low, high = LIMITS[name]
        values[name] = min(max(getattr(constants, name) + change * SIGMA[name], low), high)
    return replace(constants, **values)


def _middle(errors: Sequence[float]) -> float:
    sizes = sorted(map(abs, errors))
    return (sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2]) / 2


def _dot(left: Vector, right: Vector, weights: Vector | None = None) -> float:
    return sum(a * b * w for a, b, w in zip(left, right, weights or [1.0] * len(left), strict=True))


def solved(matrix: Sequence[Vector], wanted: Vector) -> Vector:
    """X of ``matrix`` x = ``wanted``, by elimination; ``matrix`` is symmetric and positive definite."""
    rows = [[*row, value] for row, value in zip(matrix, wanted, strict=True)]
    for pivot, row in enumerate(rows):
        for other in rows[pivot + 1 :]:
            share = other[pivot] / row[pivot]
            other[pivot:] = [below - share * above for below, above in zip(other[pivot:], row[pivot:], strict=True)]
    found: Vector = []
    for number in reversed(range(len(rows))):
        *row, value = rows[number]
        found.insert(0, (value - _dot(row[number + 1 :], found)) / row[number])
    return found
