"""What the run is billed: VM-hours times a dated price. An unknown price stays unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.plan import Cost, Storage

if TYPE_CHECKING:
    from launcher.catalog.vm_size import VmSize
    from launcher.recipe.schema import Cluster


BLOB_DOLLARS_PER_GB_MONTH = 0.02
"""Blob storage, hot, locally redundant: 0.0184 (West Europe) to 0.020 (Central India), Azure Retail Prices, 2026."""


def make_storage(bytes_per_checkpoint: int, kept: int, *, is_free: bool) -> Storage:
    """What ``kept`` checkpoints take, and cost a month in blob storage."""
    held = bytes_per_checkpoint * kept
    dollars = 0.0 if is_free else held / 1e9 * BLOB_DOLLARS_PER_GB_MONTH
    return Storage(bytes_per_checkpoint=bytes_per_checkpoint, bytes_kept=held, dollars_per_month=dollars)


def make_cost(cluster: Cluster, size: VmSize, *, hours: float) -> Cost:
    """The bill for ``hours`` of the whole cluster, at the recipe's price if it names one, else the catalogue's."""
    own = cluster.price_dollars_per_hour
    price = own if own is not None else size.price.dollars_per_hour
    spot = size.price.spot_dollars_per_hour
    is_spot = cluster.tier == "spot" and own is None
    billed = spot if is_spot else price
    return Cost(
        dollars=_bill(billed, cluster, hours),
        dollars_per_hour=_bill(billed, cluster, 1.0),
        spot_dollars=_bill(spot, cluster, hours),
        price_dollars_per_hour=billed,
        price_date="given by the recipe" if own is not None else size.price.date,
        price_region=size.price.region if own is None else cluster.region,
        price_source="cluster.price_dollars_per_hour" if own is not None else size.price.source,
    )


def _bill(price: float | None, cluster: Cluster, hours: float) -> float | None:
    return None if price is None else price * cluster.instance_count * hours
