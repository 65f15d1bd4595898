"""Fit the software constants of ``launcher/plan/calibration.py`` to the published step times. Needs numpy and scipy.

    python tests/published/fit.py               fit and print: constants, errors in sample
    python tests/published/fit.py --leave-out   and with every table left out in turn
    python tests/published/fit.py --write       and write launcher/plan/calibrated.py (both of the above)
    python tests/published/fit.py --rates       fit the curve of matrix products to azure_gemm.csv instead

A constant's best value balances the rows against its prior: each row's log error over 0.05, and each constant's
distance from its prior over its sigma, as a soft L1 least squares. Tables count by their size to the power 0.4, so
that large ones do not drown small ones. Dense rows fit the dense constants; rows with experts fit the ``expert_``
constants, the others held.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter, defaultdict
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

from launcher.cli.measurements import measurements
from launcher.plan.calibrated import MEMORY, SPREADS
from launcher.plan.calibration import Calibration
from launcher.plan.confidence import COVERAGE, regime
from launcher.plan.memory import reported_bytes
from launcher.plan.rates import TILE
from launcher.plan.step_time import step
from launcher.units import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from launcher.plan.published_row import PublishedRow

HERE = Path(__file__).parent
CALIBRATED = HERE.parents[1] / "launcher" / "plan" / "calibrated.py"
ROW_ERROR = 0.05
"""Log error of a row that weighs as much as a constant one sigma off its prior."""


def rows() -> list[PublishedRow]:
    """Every row of this folder's tables that can be predicted."""
    return measurements([str(path) for path in sorted(HERE.glob("*.csv"))])[0]


def fit(measured: Sequence[PublishedRow], names: Sequence[str], held: Calibration, *, rounds: int = 30) -> Calibration:
    """The constants ``names`` that explain ``measured`` best; the others as in ``held``."""
    priors = {field.name: field.metadata for field in fields(Calibration)}
    prior, sigma, low, high = (
        np.array([priors[name][key] for name in names]) for key in ("prior", "sigma", "low", "high")
    )
    tables = Counter((row.table, row.workload.hardware.accelerator.architecture) for row in measured)
    weights = np.array([tables[row.table, row.workload.hardware.accelerator.architecture] ** -0.3 for row in measured])
    weights /= weights.mean()

    def residuals(shift: np.ndarray) -> np.ndarray:
        constants = with_values(held, dict(zip(names, prior + shift * sigma, strict=True)))
        return np.concatenate([weights * log_errors(measured, constants), ROW_ERROR * shift])

    bounds = ((low - prior) / sigma, (high - prior) / sigma)
    start = np.clip(np.zeros(len(names)), bounds[0] + 1e-3, bounds[1] - 1e-3)
    found = least_squares(residuals, start, bounds=bounds, loss="soft_l1", f_scale=0.06, max_nfev=rounds)
    return with_values(held, dict(zip(names, prior + found.x * sigma, strict=True)))


def with_values(constants: Calibration, values: dict[str, float]) -> Calibration:
    """``constants`` with some of them set."""
    every = {field.name: getattr(constants, field.name) for field in fields(constants)}
    return Calibration(**{**every, **{name: float(value) for name, value in values.items()}})


def log_errors(measured: Iterable[PublishedRow], constants: Calibration) -> np.ndarray:
    """ln(predicted / measured) of each row."""
    return np.array([np.log(step(row.workload, constants).seconds / (row.step_seconds or 1)) for row in measured])


def constant_names(*, experts: bool) -> list[str]:
    """Constants of experts, or all the others."""
    return [field.name for field in fields(Calibration) if field.name.startswith("expert_") is experts]


def fit_all(measured: Sequence[PublishedRow]) -> Calibration:
    """Dense constants from dense rows, then expert constants from rows with experts."""
    dense = fit(
        [row for row in measured if not row.workload.shape.is_moe], constant_names(experts=False), Calibration()
    )
    return fit([row for row in measured if row.workload.shape.is_moe], constant_names(experts=True), dense)


def left_out(measured: Sequence[PublishedRow]) -> tuple[list[PublishedRow], np.ndarray]:
    """Every row's error under constants fitted without its table (dense) or its model (experts)."""
    dense = [row for row in measured if not row.workload.shape.is_moe]
    experts = [row for row in measured if row.workload.shape.is_moe]
    kept, errors = [], []
    for table in sorted({row.table for row in dense}):
        apart = [row for row in dense if row.table == table]
        constants = fit([row for row in dense if row.table != table], constant_names(experts=False), Calibration())
        errors.append(log_errors(apart, constants))
        kept += apart
        print(f"  {'without ' + table:34s}{describe(errors[-1])}", flush=True)
    held = fit(dense, constant_names(experts=False), Calibration())
    for name, apart in by(experts, model_of).items():
        others = [row for row in experts if model_of(row) != name]
        errors.append(log_errors(apart, fit(others, constant_names(experts=True), held)))
        kept += apart
        print(f"  {'without experts of ' + str(name):34s}{describe(errors[-1])}", flush=True)
    return kept, np.concatenate(errors)


def model_of(row: PublishedRow) -> str:
    """A model with experts, by its numbers: layers x width, experts."""
    shape = row.workload.shape
    return f"{shape.layers} x {shape.hidden}, {shape.experts}"


def by(measured: Iterable[PublishedRow], key: Callable[[PublishedRow], object]) -> dict[object, list[PublishedRow]]:
    """Rows grouped by ``key``, in order of first appearance."""
    groups: dict[object, list[PublishedRow]] = defaultdict(list)
    for row in measured:
        groups[key(row)].append(row)
    return groups


def describe(errors: np.ndarray) -> str:
    """Median, 90th percentile and bias, percent."""
    sizes = np.abs(errors) * 100
    middle, high, bias = np.median(sizes), np.quantile(sizes, 0.9), errors.mean() * 100
    return f"n={len(errors):4d}  median {middle:5.1f}  p90 {high:5.1f}  bias {bias:+5.1f}"


def report(measured: Sequence[PublishedRow], constants: Calibration) -> None:
    """Errors in sample, by kind and table."""
    dense = [row for row in measured if not row.workload.shape.is_moe]
    kinds = {
        "dense": dense,
        "experts": [row for row in measured if row.workload.shape.is_moe],
        "context parallel, dense": [row for row in dense if row.workload.layout.context > 1],
    }
    for kind, members in kinds.items():
        print(f"{kind:36s}{describe(log_errors(members, constants))}")
    for table, members in by(measured, lambda row: (row.table, "experts" if row.workload.shape.is_moe else "")).items():
        print(f"  {' '.join(map(str, table)):34s}{describe(log_errors(members, constants))}")  # type: ignore[call-overload]


def report_left_out(kept: Sequence[PublishedRow], errors: np.ndarray) -> None:
    """Errors of left-out rows: of all, of tables (dense), of models (experts); and what the intervals cover."""
    dense = np.array([not row.workload.shape.is_moe for row in kept])
    print(f"left out, dense rows                {describe(errors[dense])}")
    print(f"left out, rows with experts         {describe(errors[~dense])}")
    tables = by([row for row in kept if not row.workload.shape.is_moe], lambda row: row.table)
    sizes = {id(row): abs(error) for row, error in zip(kept, errors, strict=True)}
    medians = {table: float(np.median([sizes[id(row)] for row in members])) for table, members in tables.items()}
    worst = max(medians, key=lambda table: medians[table])
    middle = np.median(list(medians.values()))
    print(
        f"medians of {len(medians)} dense tables: median {100 * middle:.1f}, worst {100 * medians[worst]:.1f} ({worst})"
    )
    for name, covered in (("shipped", SPREADS), ("each regime's without its table", None)):
        print(f"left-out rows inside the 80 % interval, {name}: {100 * coverage(kept, errors, covered):.0f} %")


def coverage(kept: Sequence[PublishedRow], errors: np.ndarray, widths: dict[str, float] | None) -> float:
    """Share of left-out rows inside intervals of ``widths``; None: widths from the other tables of the regime alone."""
    inside = []
    for row, error in zip(kept, errors, strict=True):
        if widths is None:
            others = [
                abs(found)
                for other, found in zip(kept, errors, strict=True)
                if regime(other.workload) == regime(row.workload) and other.table != row.table
            ]
            width = float(np.quantile(others, COVERAGE)) if others else max(SPREADS.values())
        else:
            width = widths[regime(row.workload)]
        inside.append(abs(error) <= width)
    return float(np.mean(inside))


def spreads(measured: Sequence[PublishedRow], errors: np.ndarray) -> dict[str, float]:
    """Per regime: the half width that covers the stated share of left-out rows."""
    sizes: dict[str, list[float]] = defaultdict(list)
    for row, error in zip(measured, errors, strict=True):
        sizes[regime(row.workload)].append(abs(error))
    return {name: float(np.quantile(found, COVERAGE)) for name, found in sizes.items()}


MODERN_GRID = {"fragmentation": [x / 100 for x in range(11)]}
OLD_GRID = {"old_fragmentation": [x / 100 for x in range(13)], "megatron_deepspeed_gib": [x / 2 for x in range(17)]}


def fit_memory(sized: Sequence[PublishedRow]) -> dict[str, float]:
    """The three constants of memory, on a grid: least mean log error of the rows that print memory."""
    for grid, is_old in ((MODERN_GRID, False), (OLD_GRID, True)):
        members = [row for row in sized if (row.workload.stack.release < 2023) is is_old]
        MEMORY.update(min(combinations(grid), key=lambda values: memory_error(members, dict(values))))
    return MEMORY


def combinations(grid: dict[str, list[float]]) -> list[dict[str, float]]:
    """Every choice of one value a name."""
    names = tuple(grid)
    return [dict(zip(names, values, strict=True)) for values in product(*grid.values())]


def memory_error(members: Sequence[PublishedRow], values: dict[str, float]) -> float:
    """Mean |ln(predicted / measured)| with ``values`` set; 0 without rows, so that the first choice wins."""
    MEMORY.update(values)
    return float(np.abs(memory_errors(members)).mean()) if members else 0.0


def memory_errors(members: Sequence[PublishedRow]) -> np.ndarray:
    """ln(predicted / measured) of each row's memory."""
    return np.array(
        [np.log(reported_bytes(row.workload, row.memory_kind) / GIB / (row.memory_gib or 1)) for row in members]
    )


def report_memory(sized: Sequence[PublishedRow], *, leaves_out: bool) -> None:
    """Errors of memory in sample, and of every table under constants fitted without it."""
    print(f"memory{'':30s}{describe(memory_errors(sized))}   {fit_memory(sized)}")
    if not leaves_out:
        return
    errors = []
    for table, members in by(sized, lambda row: row.table).items():
        fit_memory([row for row in sized if row.table != table])
        errors.append(memory_errors(members))
        print(f"  {f'memory without {table}':34s}{describe(errors[-1])}   {MEMORY}")
    print(f"memory left out{'':21s}{describe(np.concatenate(errors))}")
    fit_memory(sized)


def write(constants: Calibration, widths: dict[str, float]) -> None:
    """``launcher/plan/calibrated.py``."""
    lines = ['"""Written by ``tests/published/fit.py --write``; do not edit."""', "", "VALUES = {"]
    lines += [f'    "{field.name}": {getattr(constants, field.name):.5g},' for field in fields(constants)]
    lines += ["}", "", "SPREADS = {"]
    lines += [f'    "{name}": {width:.4f},' for name, width in sorted(widths.items())]
    lines += ["}", '"""Logarithmic half width that covers 80 % of left-out rows, by regime (``confidence.py``)."""', ""]
    lines += ["MEMORY = {", *(f'    "{name}": {value:g},' for name, value in MEMORY.items()), "}"]
    lines += ['"""Shares of memory lost to gaps, and NCCL buffers before 2023 (``memory.py``, ``states.py``)."""', ""]
    CALIBRATED.write_text("\n".join(lines))


def fit_rates() -> None:
    """The curve of matrix products (``rates.py``) by architecture: large, k0, n0, start."""
    peaks = {"A100": (312e12, 2), "H100": (1978.9e12, 1), "H200": (1978.9e12, 1), "GB200": (5000e12, 1)}
    with (HERE / "azure_gemm.csv").open() as lines:
        measured = [(row["sku"], *(int(row[x]) for x in "mnk"), float(row["tflops"])) for row in csv.DictReader(lines)]
    for sku, (peak, _) in peaks.items():
        shapes = [(m, n, k, tflops) for name, m, n, k, tflops in measured if name == sku]

        def errors(x: np.ndarray, shapes: list = shapes, peak: float = peak) -> list[float]:  # type: ignore[type-arg]
            found = []
            for m, n, k, tflops in shapes:
                padded = -(-m // TILE) * -(-n // TILE) * TILE * TILE
                seconds = (
                    2 * padded * k / (peak * x[0]) * (1 + x[1] / k) * (1 + x[2] / n) * (1 + x[2] / m) + x[3] * 1e-6
                )
                found.append(np.log(2 * m * n * k / seconds / 1e12 / tflops))
            return found

        best = least_squares(
            errors, [0.7, 100, 20, 5], bounds=([0.3, 0, 0, 0], [1, 1000, 1000, 20]), x_scale=[0.1, 50, 20, 1]
        )
        print(f"{sku:6s} large {best.x[0]:.3f}  k0 {best.x[1]:.0f}  n0 {best.x[2]:.0f}  start {best.x[3]:.1f} us")


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--leave-out", "--write", "--rates"):
        parser.add_argument(option, action="store_true")
    options = parser.parse_args()
    if options.rates:
        fit_rates()
        return
    leaves_out = options.leave_out or options.write
    published = rows()
    measured = [row for row in published if row.step_seconds]
    report_memory([row for row in published if row.memory_gib], leaves_out=leaves_out)
    constants = fit_all(measured)
    for field in fields(constants):
        prior, sigma = field.metadata["prior"], field.metadata["sigma"]
        value = getattr(constants, field.name)
        print(f"  {field.name:34s}{value:12.5g}   prior {prior:g}, {(value - prior) / sigma:+.1f} sigma")
    report(measured, constants)
    if leaves_out:
        kept, errors = left_out(measured)
        report_left_out(kept, errors)
        if options.write:
            write(constants, spreads(kept, errors))


if __name__ == "__main__":
    main()
