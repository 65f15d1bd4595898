"""``launcher audit``: measured step times and memory beside predicted ones, and how far off they are."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from launcher.cli import terminal
from launcher.cli.invocation import Invocation, Verb
from launcher.units import format_seconds

if TYPE_CHECKING:
    from launcher.plan.audit import Audit, AuditRow, Summary


@click.command(cls=Verb)
@click.argument("sources", metavar="TABLE.csv|mlflow:EXPERIMENT ...", nargs=-1, required=True)
@click.option("--summary", "is_short", is_flag=True, help="Only the summaries.")
@click.pass_obj
def command(invocation: Invocation, sources: tuple[str, ...], is_short: bool) -> None:
    """Put measured step times and memory beside predicted ones, a row each, with a summary a table.

    Tables have the columns of tests/published/README.md; an experiment's runs are those that launcher tracked.

    launcher audit tests/published/*.csv --summary
    launcher audit mlflow:llama-pretraining --json
    """
    from launcher.cli.measurements import measurements
    from launcher.plan.audit import audit

    answer = audit(*measurements(sources))
    lines = _summary_lines(answer) if is_short else [*_row_lines(answer), "", *_summary_lines(answer)]
    invocation.answer(asdict(answer), lambda: "\n".join(lines))


def _row_lines(answer: Audit) -> list[str]:
    header = ("row", "step measured", "predicted", "80 % interval", "off", "GiB measured", "predicted", "off", "")
    return terminal.titled_table(header, map(_cells, answer.rows), right=range(1, 8))


def _cells(row: AuditRow) -> tuple[str, ...]:
    interval = f"{row.low_seconds:.4g} - {row.high_seconds:.4g}"
    marks = [] if row.calibration == "inside" else ["outside calibration"]
    marks += ["out of memory"] if row.fits is False else []
    return (
        row.id,
        format_seconds(row.measured_step_seconds) if row.measured_step_seconds else "",
        format_seconds(row.predicted_step_seconds),
        interval,
        _off(row.predicted_step_seconds, row.measured_step_seconds),
        f"{row.measured_memory_gib:.1f}" if row.measured_memory_gib else "",
        f"{row.predicted_memory_gib:.1f}",
        _off(row.predicted_memory_gib, row.measured_memory_gib),
        ", ".join(marks),
    )


def _off(predicted: float, measured: float | None) -> str:
    return f"{100 * (predicted / measured - 1):+.1f} %" if measured else ""


def _summary_lines(answer: Audit) -> list[str]:
    header = ("", "rows", "median error", "90 %", "bias", "in interval", "memory rows", "median error")
    lines = terminal.titled_table(header, map(_summary_cells, answer.summary), right=range(1, 8))
    wrong = answer.summary[0].misjudged if answer.summary else ()
    lines += ["", f"fits or not, wrongly said of: {', '.join(wrong)}"] if wrong else []
    if answer.excluded:
        lines += ["", terminal.bold(f"left out ({len(answer.excluded)})")]
        lines += [f"  {', '.join(names)}: {reason}" for reason, names in _by_reason(answer).items()]
    return lines


def _summary_cells(summary: Summary) -> tuple[str, ...]:
    return (
        summary.group,
        str(summary.rows),
        _percent(summary.median_error),
        _percent(summary.ninetieth_percentile),
        _percent(summary.bias, sign="+"),
        _percent(summary.coverage),
        str(summary.memory_rows or ""),
        _percent(summary.median_memory_error),
    )


def _percent(share: float | None, sign: str = "") -> str:
    return "" if share is None else f"{100 * share:{sign}.1f} %"


def _by_reason(answer: Audit) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for name, reason in answer.excluded:
        reasons.setdefault(reason, []).append(name)
    return reasons
