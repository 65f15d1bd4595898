"""``launcher logs``: what the ranks print."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher.cli.handles import handle_argument, resolve_handle
from launcher.cli.invocation import Invocation, Verb
from launcher.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


@click.command(cls=Verb)
@handle_argument(required=False)
@click.option("--rank", type=click.IntRange(min=0), help="One rank; all of them, prefixed, when not given.")
@click.option("--node", type=click.IntRange(min=0), help="The ranks of one node.")
@click.option("--all", "everything", is_flag=True, help="All ranks (the default).")
@click.option("--errors", is_flag=True, help="The first failure alone: which rank, and its traceback.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.pass_obj
def command(
    invocation: Invocation,
    handle: str | None,
    rank: int | None,
    node: int | None,
    everything: bool,
    errors: bool,
    follow: bool,
) -> None:
    """Print the log of a run's ranks. Without HANDLE: the newest run.

    launcher logs -f
    launcher logs latest --rank 0
    launcher logs latest --errors
    """
    from launcher.backends import backend_for, parse_handle

    handle = resolve_handle(invocation, handle)
    if sum((rank is not None, node is not None, everything, errors)) > 1:
        raise UsageError("--rank, --node, --all and --errors choose the same thing", allowed="one of them")
    if errors:
        _show_failure(invocation, handle)
        return
    lines = backend_for(parse_handle(handle)[0]).logs(handle, rank=rank, follow=follow)
    if node is not None:
        lines = _of_node(lines, handle, node)
    if invocation.json:
        invocation.answer({"handle": handle, "rank": rank, "lines": list(lines)}, str)
        return
    is_silent = True
    for line in lines:
        is_silent = False
        click.echo(line)
    if is_silent:
        invocation.say("nothing was written" if rank is None else f"rank {rank} has written nothing")


def _of_node(lines: Iterator[str], handle: str, node: int) -> Iterator[str]:
    """The lines of one node's ranks, by their prefix."""
    from launcher.runs.remembered import plan_of

    topology = plan_of(handle).topology
    if node >= topology.nodes:
        raise UsageError(f"there is no node {node}", allowed=f"0 to {topology.nodes - 1}", code="usage.node")
    first = node * topology.processes_per_node
    prefixes = tuple(f"[rank {rank}] " for rank in range(first, first + topology.processes_per_node))
    return (line for line in lines if line.startswith(prefixes))


def _show_failure(invocation: Invocation, handle: str) -> None:
    from launcher.cli.diagnose import diagnosis_document
    from launcher.runs.diagnose import diagnose

    found = diagnose(handle)
    lines = list(found.evidence) or [found.what]
    prefix = "" if found.rank is None else f"[rank {found.rank}] "
    invocation.answer(diagnosis_document(found), lambda: "\n".join(prefix + line for line in lines))
