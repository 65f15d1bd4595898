"""``launcher open``: where a person can look at a run."""

from __future__ import annotations

import click

from launcher.cli import terminal
from launcher.cli.handles import handle_argument, resolve_handle
from launcher.cli.invocation import Invocation, Verb, is_interactive


@click.command(cls=Verb)
@handle_argument(required=False)
@click.option("--print", "only_print", is_flag=True, help="Show the addresses, and open none.")
@click.pass_obj
def command(invocation: Invocation, handle: str | None, only_print: bool) -> None:
    """Open a run in the browser: the studio, or its folder. Without HANDLE: the newest run.

    launcher open latest --print
    """
    from launcher.backends import parse_handle
    from launcher.runs.links import links

    handle = resolve_handle(invocation, handle)
    found = links(handle)
    document = {"handle": handle, **found}
    invocation.answer(document, lambda: "\n".join(terminal.table(found.items())))
    if is_interactive() and not only_print and not invocation.json and parse_handle(handle)[0] != "local":
        click.launch(found["studio"])
