"""``launcher watch``: a run until it ends, over as many attempts as it is given."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from launcher.cli.handles import handle_argument, resolve_handle
from launcher.cli.invocation import Invocation, Verb
from launcher.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Plan
    from launcher.runs.attempts import Ending
    from launcher.runs.watch import Progress


@click.command(cls=Verb)
@handle_argument(required=False)
@click.option("--resubmit", metavar="N", type=click.IntRange(min=0), default=0, help="Send up to N further attempts.")
@click.option("--retry-user-code", is_flag=True, help="Try the code's own failures again too.")
@click.option("--grep", metavar="PATTERN", help="End with exit code 1 at the first log line that matches.")
@click.pass_obj
def command(invocation: Invocation, handle: str | None, resubmit: int, retry_user_code: bool, grep: str | None) -> None:
    """Watch a run until it ends. Without HANDLE: the newest run. The exit code is the run's: 0 only if it completed.

    After a preemption, a bad node or a failure of the service, --resubmit sends the next attempt, which continues from
    the newest checkpoint. A run that passes limits.budget_dollars is told to save and end (exit code 5).

    launcher watch
    launcher watch latest --resubmit 2
    launcher watch latest --grep 'OutOfMemory|loss nan'
    """
    from launcher.runs.attempts import carry

    handle = resolve_handle(invocation, handle)
    if grep is not None:
        _search(invocation, handle, _pattern(grep))
        return
    ending = carry(
        handle,
        attempts=resubmit,
        watch=lambda run: _watch_one(invocation, run),
        say=invocation.say,
        also_user_code=retry_user_code,
    )
    _tell(invocation, ending)
    if ending.status.state != "Completed":
        raise click.exceptions.Exit(ExitCode.RUN_FAILED)


def _watch_one(invocation: Invocation, handle: str) -> int | None:
    """Follow one attempt; the last step it logged."""
    from launcher.cli.follow import show_progress
    from launcher.runs.remembered import plan_of
    from launcher.runs.watch import progress

    plan, seen = plan_of(handle), list[int]()
    show_progress(_within_budget(progress(handle), handle, plan, seen), plan, invocation)
    return seen[-1] if seen else None


def _within_budget(moments: Iterator[Progress], handle: str, plan: Plan, seen: list[int]) -> Iterator[Progress]:
    """The moments, until the run has cost more than it may: then it is told to save and end.

    Raises:
        BudgetError: it has, and was.
    """
    from launcher.backends import backend_for, parse_handle
    from launcher.errors import BudgetError
    from launcher.units import format_dollars

    budget = _budget(handle)
    for moment in moments:
        if moment.step is not None:
            seen.append(moment.step)
        yield moment
        if budget is not None and moment.dollars is not None and moment.dollars > budget:
            backend_for(parse_handle(handle)[0]).cancel(handle)
            raise BudgetError(
                f"{handle} has cost {format_dollars(moment.dollars)} of {format_dollars(budget)}: it was told to save "
                "and end",
                keys=("limits.budget_dollars",),
                suggestion=f"launcher submit --resume {handle} limits.budget_dollars=...",
                code="budget.running",
            )


def _budget(handle: str) -> float | None:
    from launcher.runs.remembered import recipe_of

    return recipe_of(handle).limits.budget_dollars


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"--grep {text!r} is no regular expression: {error}") from error


def _search(invocation: Invocation, handle: str, pattern: re.Pattern[str]) -> None:
    from launcher.backends import backend_for, parse_handle
    from launcher.cli.status import status_document, status_line

    backend = backend_for(parse_handle(handle)[0])
    for line in backend.logs(handle, follow=True):
        if pattern.search(line):
            invocation.answer({"handle": handle, "match": line}, lambda line=line: line)  # type: ignore[misc]
            raise click.exceptions.Exit(ExitCode.RUN_FAILED)
    status = backend.status(handle)
    invocation.answer(status_document(status) | {"match": None}, lambda: status_line(status))
    if status.state != "Completed":
        raise click.exceptions.Exit(ExitCode.RUN_FAILED)


def _tell(invocation: Invocation, ending: Ending) -> None:
    from launcher.cli.diagnose import diagnosis_document, diagnosis_lines
    from launcher.cli.status import status_document, status_line

    diagnosis = ending.diagnosis
    document = status_document(ending.status) | {"step": ending.step}
    document["diagnosis"] = diagnosis_document(diagnosis) if diagnosis else None
    lines = [status_line(ending.status)] if diagnosis is None else diagnosis_lines(diagnosis)
    invocation.answer(document, lambda: "\n".join(lines))
