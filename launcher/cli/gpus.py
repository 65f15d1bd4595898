"""``launcher gpus``: what GPUs the workspace's region has for us."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from launcher.cli import terminal
from launcher.cli.invocation import Invocation, Verb
from launcher.units import format_dollars

if TYPE_CHECKING:
    from launcher.backends.azureml.gpus import Offer


@click.command(cls=Verb)
@click.option("--all", "everything", is_flag=True, help="Sizes without quota too.")
@click.pass_obj
def command(invocation: Invocation, everything: bool) -> None:
    """List the GPU sizes of the workspace's region: quota, nodes left, clusters, price. Quota promises no capacity.

    launcher gpus --all
    """
    from launcher.backends.azureml.backend import AzureMLBackend
    from launcher.backends.azureml.gpus import offers

    found = [offer for offer in offers(AzureMLBackend().client()) if everything or offer.nodes_left or offer.clusters]
    header = ("size", "GPUs", "quota", "in use", "nodes left", "clusters", "$/h")
    invocation.answer(
        {"gpus": [_document(offer) for offer in found]},
        lambda: "\n".join(
            terminal.titled_table(header, map(_row, found), right={2, 3, 4, 6})
            if found
            else ["no GPU size has quota here: launcher gpus --all"]
        ),
    )


def _document(offer: Offer) -> dict[str, Any]:
    quota = offer.quota
    return {
        "size": offer.size.name,
        "accelerator": offer.size.accelerator,
        "gpus": offer.size.gpus,
        "vcpus": offer.size.vcpus,
        "is_offered": offer.is_offered,
        "quota": {"family": quota.family, "used": quota.used, "limit": quota.limit} if quota else None,
        "nodes_left": offer.nodes_left,
        "clusters": [asdict(cluster) for cluster in offer.clusters],
        "price_dollars_per_hour": offer.size.price.dollars_per_hour,
        "price_date": offer.size.price.date,
    }


def _row(offer: Offer) -> tuple[str, ...]:
    quota, price = offer.quota, offer.size.price.dollars_per_hour
    return (
        offer.size.name,
        f"{offer.size.gpus} x {offer.size.accelerator}",
        f"{quota.limit:,}" if quota else "?",
        f"{quota.used:,}" if quota else "?",
        "?" if offer.nodes_left is None else f"{offer.nodes_left:,}",
        ", ".join(f"{c.name} {c.nodes - c.busy_nodes}/{c.max_nodes} idle" for c in offer.clusters),
        format_dollars(price) if price is not None else "?",
    )
