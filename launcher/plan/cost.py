"""What the run is billed: VM-hours times a dated price. An unknown price stays unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.plan import Cost

if TYPE_CHECKING:
    from launcher.catalog.vm_size import VmSize
    from launcher.recipe.schema import Cluster


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
