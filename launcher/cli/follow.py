"""Watching a run until it ends: a live line on a terminal, now and then a line elsewhere; then its report."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from launcher.cli.invocation import is_interactive
from launcher.cli.status import paint_state
from launcher.cli.submit import submission_document, submission_lines
from launcher.errors import ExitCode
from launcher.units import format_bytes, format_count, format_dollars, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from launcher.backends.backend import RunStatus, Submission
    from launcher.cli.invocation import Invocation
    from launcher.plan.plan import Plan
    from launcher.runs.watch import Progress

QUIET_SECONDS = 10.0
"""Between two lines about the same state where no terminal shows a live one."""


def follow_run(invocation: Invocation, submission: Submission, plan: Plan) -> None:
    """Watch until the run ends, then answer with its report; the exit code tells how it ended."""
    handle = submission.handle
    if not invocation.json:
        invocation.say("\n".join([*submission_lines(handle, submission.url), ""]))
    status = _watched(invocation, handle, plan)
    if invocation.json:
        invocation.answer(
            submission_document(handle, state=status.state, url=submission.url) | {"reason": status.reason}, str
        )
    else:
        _tell_end(invocation, status)
    if status.state != "Completed":
        timed_out = status.exit_code == ExitCode.TIMED_OUT
        raise click.exceptions.Exit(ExitCode.TIMED_OUT if timed_out else ExitCode.RUN_FAILED)


def progress_lines(progress: Progress, plan: Plan) -> list[str]:
    """Two lines: state, step and what is measured beside what was planned; time, money, and what is left."""
    head = paint_state(progress.state)
    if progress.step is None:
        stages = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in progress.stages)
        waiting = progress.reason or stages or "before the first step"
        return [f"{head}  {format_seconds(progress.elapsed_seconds)}   {waiting}"]
    total = f"/{progress.total_steps:,}" if progress.total_steps else ""
    measured = [f"step {progress.step:,}{total}", *_figures(progress, plan)]
    return [f"{head}  {'   '.join(measured)}", f"{'':9}  {'   '.join(_times(progress))}"]


def _figures(progress: Progress, plan: Plan) -> Iterator[str]:
    if progress.loss is not None:
        yield f"loss {progress.loss:.3f}"
    if progress.learning_rate is not None:
        yield f"lr {progress.learning_rate:.2g}"
    if progress.tokens_per_second is not None:
        planned = f" (planned {format_count(plan.time.tokens_per_second)})"
        yield f"{format_count(progress.tokens_per_second)} tokens/s{planned}"
    if progress.mfu is not None:
        planned = f" (planned {100 * plan.time.mfu:.1f})" if plan.time.mfu is not None else ""
        yield f"MFU {100 * progress.mfu:.1f} %{planned}"
    if progress.peak_memory_bytes is not None:
        yield f"mem {format_bytes(progress.peak_memory_bytes)} (planned {format_bytes(plan.memory.bytes_per_gpu)})"


def _times(progress: Progress) -> Iterator[str]:
    yield format_seconds(progress.elapsed_seconds)
    if progress.dollars:
        yield format_dollars(progress.dollars)
    if progress.eta_seconds is not None:
        yield f"ETA {format_seconds(progress.eta_seconds)}"
    if progress.evaluation_loss is not None:
        yield f"evaluation loss {progress.evaluation_loss:.3f}"
    if progress.last_checkpoint_step is not None:
        yield f"last checkpoint {progress.last_checkpoint_step:,}"
    if progress.restarts:
        yield f"restarted {progress.restarts} x"


def _watched(invocation: Invocation, handle: str, plan: Plan) -> RunStatus:
    """Where the run stands when it has ended; an interrupted watch asks what to do."""
    from launcher.backends import backend_for, parse_handle
    from launcher.runs.watch import progress

    backend = backend_for(parse_handle(handle)[0])
    while True:
        try:
            show_progress(progress(handle), plan, invocation)
            return backend.status(handle)
        except KeyboardInterrupt:
            wish = _wish(invocation, handle)
        if wish == "cancel":
            return backend.cancel(handle)
        if wish == "detach":
            invocation.say(f"still running: launcher logs -f {handle}    launcher cancel {handle}")
            raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _wish(invocation: Invocation, handle: str) -> str:
    """What to do with the run after Ctrl-C: it goes on unless somebody says otherwise."""
    if not is_interactive():
        return "detach"
    choices = click.Choice(["detach", "cancel", "stay"])
    wish: str = click.prompt(f"\n{handle} goes on. Now", type=choices, default="detach", err=True)
    return wish


def show_progress(moments: Iterable[Progress], plan: Plan, invocation: Invocation) -> None:
    """Show each moment: in place on a terminal, else a line when the state changes and every 10 s."""
    if sys.stderr.isatty():
        _show_live(moments, plan)
    else:
        _show_now_and_then(moments, plan, invocation)


def _show_live(moments: Iterable[Progress], plan: Plan) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(stderr=True), auto_refresh=False) as live:
        for moment in moments:
            live.update(Text.from_ansi("\n".join(progress_lines(moment, plan))), refresh=True)


def _show_now_and_then(moments: Iterable[Progress], plan: Plan, invocation: Invocation) -> None:
    said_at, said_state = 0.0, ""
    for moment in moments:
        now = time.monotonic()
        if moment.state != said_state or now - said_at >= QUIET_SECONDS:
            said_at, said_state = now, moment.state
            invocation.say("  ".join(line.strip() for line in progress_lines(moment, plan)))


def _tell_end(invocation: Invocation, status: RunStatus) -> None:
    """How it ended, and planned beside measured if it left metrics (a team's own script may leave none)."""
    from launcher.cli.report import make, report_lines, run_record
    from launcher.cli.status import status_line

    record = run_record(status.handle)
    report = ["", *report_lines(make(status.handle, record))[2:]] if record.rows else []
    invocation.say("")
    invocation.answer(None, lambda: "\n".join([status_line(status), *report]))
    if status.state != "Completed":
        invocation.say(f"next       launcher logs {status.handle}    launcher diagnose {status.handle}")
