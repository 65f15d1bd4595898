"""``launcher logs``: what the ranks print."""

from __future__ import annotations

import click

from launcher.cli.handles import handle_argument, resolve_handle
from launcher.cli.invocation import Invocation, Verb


@click.command(cls=Verb)
@handle_argument(required=False)
@click.option("--rank", type=click.IntRange(min=0), help="One rank; all of them, prefixed, when not given.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.pass_obj
def command(invocation: Invocation, handle: str | None, rank: int | None, follow: bool) -> None:
    """Print the log of a run's ranks. Without HANDLE: the newest run.

    launcher logs -f
    launcher logs latest --rank 0
    """
    from launcher.backends import backend_for, parse_handle

    handle = resolve_handle(invocation, handle)
    lines = backend_for(parse_handle(handle)[0]).logs(handle, rank=rank, follow=follow)
    if invocation.json:
        invocation.answer({"handle": handle, "rank": rank, "lines": list(lines)}, str)
        return
    for line in lines:
        click.echo(line)
