"""``launcher cluster``: compute targets made, shown, scaled and deleted."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from launcher.cli import terminal
from launcher.cli.invocation import Invocation, Verb, VerbGroup, is_interactive
from launcher.errors import UsageError

if TYPE_CHECKING:
    from launcher.backends.azureml.client import Client
    from launcher.backends.azureml.clusters import Cluster


@click.group(cls=VerbGroup)
def command() -> None:
    """Make, show, scale and delete the clusters jobs run on."""


@command.command(cls=Verb)
@click.argument("name")
@click.option("--size", required=True, help="Azure VM size, such as Standard_ND96isr_H100_v5.")
@click.option("--max", "most", type=click.IntRange(min=1), default=1, show_default=True, help="Nodes it grows to.")
@click.option("--min", "least", type=click.IntRange(min=0), default=0, show_default=True, help="Nodes it keeps.")
@click.option("--spot", is_flag=True, help="Low-priority nodes: cheaper, and may be taken away.")
@click.option("--idle-minutes", type=click.IntRange(min=1), default=30, show_default=True, help="Before a node goes.")
@click.option("--ssh-key", metavar="PUBLIC_KEY", help="Who may enter; fixed when the cluster is made.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def create(
    invocation: Invocation,
    name: str,
    size: str,
    most: int,
    least: int,
    spot: bool,
    idle_minutes: int,
    ssh_key: str | None,
    yes: bool,
) -> None:
    """Make a cluster with an identity of its own, or bring the one of this name to what is asked.

    launcher cluster create h100 --size Standard_ND96isr_H100_v5 --max 16
    """
    from launcher.backends.azureml.clusters import Wish, create

    if least:
        _confirm(f"{least} nodes of {size} will be paid for until the cluster is scaled down or deleted.", yes=yes)
    wish = Wish(
        name=name,
        size=size,
        tier="spot" if spot else "dedicated",
        min_nodes=least,
        max_nodes=most,
        idle_seconds=idle_minutes * 60,
        ssh_public_key=ssh_key,
    )
    _answer(invocation, create(_client(), wish))


@command.command(cls=Verb)
@click.argument("name", required=False)
@click.pass_obj
def show(invocation: Invocation, name: str | None) -> None:
    """Show one cluster, or all of them: size, tier, nodes now and at most.

    launcher cluster show h100
    """
    from launcher.backends.azureml.clusters import clusters, show

    if name is not None:
        _answer(invocation, show(_client(), name))
        return
    found = list(clusters(_client()))
    header = ("cluster", "size", "tier", "nodes", "state")
    invocation.answer(
        {"clusters": [asdict(cluster) for cluster in found]},
        lambda: "\n".join(terminal.titled_table(header, map(_row, found)) if found else ["the workspace has none"]),
    )


@command.command(cls=Verb)
@click.argument("name")
@click.option("--max", "most", type=click.IntRange(min=0), help="Nodes it grows to.")
@click.option("--min", "least", type=click.IntRange(min=0), help="Nodes it keeps, and that are paid for.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def scale(invocation: Invocation, name: str, most: int | None, least: int | None, yes: bool) -> None:
    """Change how far a cluster shrinks and grows.

    launcher cluster scale h100 --max 32
    """
    from launcher.backends.azureml.clusters import scale

    if most is None and least is None:
        raise UsageError("scale to what?", suggestion=f"launcher cluster scale {name} --max 8")
    if least:
        _confirm(f"{least} nodes will be paid for until the cluster is scaled down or deleted.", yes=yes)
    _answer(invocation, scale(_client(), name, min_nodes=least, max_nodes=most))


@command.command(cls=Verb)
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(invocation: Invocation, name: str, yes: bool) -> None:
    """Delete a cluster; what runs on it ends.

    launcher cluster delete h100 --yes
    """
    from launcher.backends.azureml.clusters import delete

    _confirm(f"Cluster {name} will be gone, and what runs on it.", yes=yes)
    delete(_client(), name)
    invocation.answer({"deleted": name}, lambda: f"deleted    {name}")


def _client() -> Client:
    from launcher.backends.azureml.backend import AzureMLBackend

    return AzureMLBackend().client()


def _confirm(what: str, *, yes: bool) -> None:
    """Ask before something is paid for or lost.

    Raises:
        UsageError: nobody is there to ask.
    """
    if yes:
        return
    if not is_interactive():
        raise UsageError(f"{what} Nobody is here to confirm it", suggestion="--yes", code="usage.confirmation")
    click.confirm(f"{what} Go on?", err=True, abort=True)


def _answer(invocation: Invocation, cluster: Cluster) -> None:
    invocation.answer(asdict(cluster), lambda: "\n".join(terminal.table([_row(cluster)])))


def _row(cluster: Cluster) -> tuple[str, ...]:
    nodes = f"{cluster.nodes} ({cluster.busy_nodes} busy) of {cluster.min_nodes}..{cluster.max_nodes}"
    return (cluster.name, cluster.size, cluster.tier, nodes, cluster.state)
