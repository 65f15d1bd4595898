"""``launcher status``: where a run stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from launcher.cli import terminal
from launcher.cli.handles import handle_argument, resolve_handle
from launcher.cli.invocation import Invocation, Verb

if TYPE_CHECKING:
    from launcher.backends.backend import RunStatus


@click.command(cls=Verb)
@handle_argument(required=False)
@click.pass_obj
def command(invocation: Invocation, handle: str | None) -> None:
    """Show where a run stands, in Azure ML's words, and why. Without HANDLE: the newest run.

    launcher status latest
    """
    from launcher.backends import backend_for, parse_handle

    handle = resolve_handle(invocation, handle)
    status = backend_for(parse_handle(handle)[0]).status(handle)
    invocation.answer(status_document(status), lambda: status_line(status))


def status_document(status: RunStatus) -> dict[str, Any]:
    """``{handle, state, reason, exit_code}``."""
    return {"handle": status.handle, "state": status.state, "reason": status.reason, "exit_code": status.exit_code}


def status_line(status: RunStatus) -> str:
    """``Failed     local:gpt-tiny-...-1    rank 1 was killed``."""
    code = f" (exit code {status.exit_code})" if status.exit_code else ""
    return f"{paint_state(status.state)}  {status.handle}    {status.reason or ''}{code}".rstrip()


def paint_state(state: str) -> str:
    """A state word in nine columns or more: Completed green, Failed red."""
    paint = {"Completed": terminal.green, "Failed": terminal.red, "Canceled": terminal.yellow}.get(state, str)
    return terminal.pad(paint(state), 9)
