"""``launcher report``: what was measured, beside what was planned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher.cli import terminal
from launcher.cli.handles import handle_argument, resolve_handle
from launcher.cli.invocation import Invocation, Verb
from launcher.cli.status import paint_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.runs.report import Report, RunRecord


@click.command(cls=Verb)
@handle_argument(required=False)
@click.option(
    "--html", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Write one page with curves."
)
@click.pass_obj
def command(invocation: Invocation, handle: str | None, html: Path | None) -> None:
    """Show a run's measured figures beside the planned ones. Without HANDLE: the newest run.

    launcher report
    launcher report latest --html run.html
    """
    from launcher.runs.report import encode

    handle = resolve_handle(invocation, handle)
    record = run_record(handle)
    report = make(handle, record)
    if html is not None:
        _write_html(html, report, record)
        invocation.say(f"written to {html}")
    invocation.answer(encode(report), lambda: "\n".join(report_lines(report)))


def run_record(handle: str) -> RunRecord:
    """Plan, recipe and metric rows of a run; those of a run on Azure ML are fetched.

    Raises:
        NoSuchRunError: there is no such run.
    """
    from launcher.backends import parse_handle
    from launcher.runs.report import RunRecord, read_run

    backend, name = parse_handle(handle)
    if backend == "local":
        from launcher.backends.local.backend import run_folder

        return read_run(run_folder(handle).path)
    from launcher.backends.azureml.backend import AzureMLBackend
    from launcher.home import cache_folder
    from launcher.recipe.codec import encode
    from launcher.runs.remembered import plan_of, recipe_of
    from launcher.tracking.spool import METRICS_FILE, all_rows

    output, folder = AzureMLBackend().output(handle), cache_folder() / "runs" / name
    spools = [file for file in output.files() if file.path == METRICS_FILE]
    output.fetch(spools, folder, progress=lambda _: None)
    return RunRecord(plan=plan_of(handle), recipe=encode(recipe_of(handle)), rows=all_rows(folder / METRICS_FILE))


def make(handle: str, record: RunRecord) -> Report:
    """The report of a run as it stands now."""
    from launcher.backends import backend_for, parse_handle
    from launcher.runs.report import make_report

    state = backend_for(parse_handle(handle)[0]).status(handle).state
    return make_report(record.plan, record.rows, handle=handle, state=state)


def _write_html(path: Path, report: Report, record: RunRecord) -> None:
    from launcher.errors import UsageError
    from launcher.runs.report_html import render_page

    try:
        path.write_text(render_page(report, record), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", code="usage.html") from error


def report_lines(report: Report) -> list[str]:
    """Planned, measured, ratio and verdict, a figure a line; then losses, where the time went, and what to know."""
    from launcher.runs.report import cells

    header = ("", "planned", "measured", "ratio", "")
    return [
        f"{paint_state(report.state)}  {report.handle}    {report.recipe_name} on {report.hardware}",
        "",
        *terminal.table([tuple(map(terminal.dim, header)), *map(cells, report.figures)], gap=4),
        "",
        *terminal.table(_remarks(report), gap=4),
        *(terminal.dim(line) for note in report.notes for line in _note(note)),
    ]


def _remarks(report: Report) -> Iterator[tuple[str, str]]:
    if report.loss_first is not None and report.loss_last is not None:
        fall = report.loss_first - report.loss_last
        yield "training loss", f"{report.loss_first:.3f} -> {report.loss_last:.3f} (falls by {fall:.3f} nats)"
    if report.evaluation_loss is not None:
        yield "evaluation loss", f"{report.evaluation_loss:.3f} at step {report.evaluation_step:,}"
    if report.shares:
        yield "where the time went", ", ".join(f"{share.name} {100 * share.measured:.0f} %" for share in report.shares)
    if report.attempts > 1:
        yield "attempts", str(report.attempts)


def _note(note: str) -> list[str]:
    return terminal.wrapped(f"note  {note}", terminal.width(), indent=" " * 6)
