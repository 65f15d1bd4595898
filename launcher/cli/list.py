"""``launcher list``: the runs that were submitted from here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from launcher.cli import terminal
from launcher.cli.invocation import Invocation, Verb
from launcher.cli.status import paint_state

if TYPE_CHECKING:
    from launcher.runs.journal import Row


@click.command(cls=Verb)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="Newest runs shown.")
@click.option("--workspace", is_flag=True, help="Everybody's runs in the Azure ML workspace.")
@click.pass_obj
def command(invocation: Invocation, limit: int, workspace: bool) -> None:
    """List the runs of this machine's journal, newest first.

    Local runs are looked at; of a remote run, what is known without the network is shown ('launcher status' asks).
    """
    from launcher.runs.journal import rows

    if workspace:
        _list_workspace(invocation, limit)
        return
    every = rows()
    runs = [_run(row) for row in every[:limit]]
    invocation.answer({"runs": [_document(run) for run in runs]}, lambda: "\n".join(_lines(runs)))
    if len(every) > limit:
        invocation.say(f"{len(every) - limit} older runs are not shown (--limit)")


def _list_workspace(invocation: Invocation, limit: int) -> None:
    from itertools import islice

    from launcher.backends.azureml.backend import AzureMLBackend
    from launcher.cli.status import status_document

    runs = list(islice(AzureMLBackend().runs(), limit))
    rows = [(run.handle, paint_state(run.state)) for run in runs]
    invocation.answer(
        {"runs": [status_document(run) for run in runs]},
        lambda: "\n".join(terminal.titled_table(("run", "state"), rows) if rows else ["the workspace has none"]),
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """A row of the journal, and where the run stands."""

    row: Row
    state: str
    reason: str | None


def _run(row: Row) -> Run:
    from launcher.backends import backend_for
    from launcher.errors import NoSuchRunError

    if row.backend != "local":
        return Run(row=row, state=row.state.capitalize(), reason=None)
    try:
        status = backend_for("local").status(row.handle)
    except NoSuchRunError:
        return Run(row=row, state="Deleted", reason="its folder is gone")
    return Run(row=row, state=status.state, reason=status.reason)


def _document(run: Run) -> dict[str, Any]:
    return {
        "handle": run.row.handle,
        "state": run.state,
        "reason": run.reason,
        "recipe": run.row.recipe,
        "attempt": run.row.attempt,
        "submitted_at": run.row.created_at,
        "url": run.row.url,
        "parent": run.row.parent,
    }


def _lines(runs: list[Run]) -> list[str]:
    if not runs:
        return ["nothing was submitted from here yet"]
    rows = [(run.row.handle, paint_state(run.state), _when(run.row.created_at), run.reason or "") for run in runs]
    return terminal.titled_table(("run", "state", "submitted", ""), rows)


def _when(timestamp: str) -> str:
    """A UTC timestamp in this machine's time, to the minute."""
    return f"{datetime.fromisoformat(timestamp).astimezone():%Y-%m-%d %H:%M}"
