"""``launcher cancel``: the end of a run."""

from __future__ import annotations

import click

from launcher.cli.handles import handle_argument, resolve_handle
from launcher.cli.invocation import Invocation, Verb
from launcher.cli.status import status_document, status_line


@click.command(cls=Verb)
@handle_argument(required=True)
@click.pass_obj
def command(invocation: Invocation, handle: str) -> None:
    """End a run; its ranks have time to write a checkpoint. Harmless on one that has ended.

    launcher cancel latest
    """
    from launcher.backends import backend_for, parse_handle

    handle = resolve_handle(invocation, handle)
    status = backend_for(parse_handle(handle)[0]).cancel(handle)
    invocation.answer(status_document(status), lambda: status_line(status))
