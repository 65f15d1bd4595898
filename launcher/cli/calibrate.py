"""``launcher calibrate``: constants of a team's own stack, from its own runs, as a choice a recipe can name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher.cli import terminal
from launcher.cli.invocation import Invocation, Verb
from launcher.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.plan.refit import Refit

FEWEST = 2
"""Runs below which nothing is learnt."""


@click.command(cls=Verb)
@click.argument("sources", metavar="TABLE.csv|mlflow:EXPERIMENT ...", nargs=-1, required=True)
@click.option(
    "--to", "path", metavar="FILE", type=click.Path(path_type=Path), required=True, help="DIR/calibration/NAME.yaml"
)
@click.pass_obj
def command(invocation: Invocation, sources: tuple[str, ...], path: Path) -> None:
    """Fit the planner's constants to your own runs; the shipped ones stay as they are.

    The file is a choice of the calibration group: a recipe names it, and its values travel with the recipe.

    launcher calibrate mlflow:llama-pretraining --to recipes/calibration/ours.yaml
    launcher plan llama3/8b calibration=ours --recipes recipes
    """
    from launcher.cli.measurements import measurements
    from launcher.plan.refit import refit

    rows, excluded = measurements(sources)
    timed = [row for row in rows if row.step_seconds]
    if len(timed) < FEWEST:
        raise UsageError(f"{len(timed)} run with a step time: at least {FEWEST} are needed")
    found = refit(timed)
    _write(path, _text(found, sources, runs=len(timed)))
    document = {
        "path": str(path),
        "runs": len(timed),
        "calibration": values(found),
        "median_error_before": found.before,
        "median_error_after": found.after,
        "median_error_left_out": found.left_out,
        "excluded": excluded,
    }
    invocation.answer(document, lambda: "\n".join(_lines(found, path, runs=len(timed))))


def values(found: Refit) -> dict[str, float]:
    """What a recipe's ``calibration`` holds: the constants that moved, and the interval's half width where known."""
    from launcher.plan.calibration import HALF_WIDTH

    width = {} if found.half_width is None else {HALF_WIDTH: found.half_width}
    return {name: float(f"{value:.5g}") for name, value in {**found.moved, **width}.items()}


def _text(found: Refit, sources: Sequence[str], *, runs: int) -> str:
    head = f"# Written by launcher calibrate from {runs} runs of {', '.join(sources)}; do not edit."
    return "\n".join([head, *(f"{name}: {value!r}" for name, value in values(found).items()), ""])


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as fault:
        raise UsageError(f"{path} cannot be written: {fault}") from fault


def _lines(found: Refit, path: Path, *, runs: int) -> list[str]:
    from launcher.plan.calibration import shipped

    rows = [(name, f"{getattr(shipped(), name):.4g}", f"{value:.4g}") for name, value in found.moved.items()]
    left_out = "too few runs to leave some out" if found.left_out is None else f"{100 * found.left_out:.1f} % left out"
    return [
        f"{runs} runs: median error {100 * found.before:.1f} % before, {100 * found.after:.1f} % after, {left_out}",
        *terminal.titled_table(("constant", "shipped", "yours"), rows, right=(1, 2)),
        f"written to {path}: calibration={path.stem} --recipes {path.parent.parent} uses it",
    ]
