"""Electricity and carbon: thermal design power x share drawn x datacentre overhead x grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.catalog.grid import grid
from launcher.plan.plan import Energy

if TYPE_CHECKING:
    from launcher.catalog.accelerator import Accelerator

DRAWN = 0.9
"""Share of thermal design power a busy GPU draws on average: assumed; hosts and network are left out."""


def make_energy(accelerator: Accelerator, *, ranks: int, hours: float, region: str | None) -> Energy:
    """Energy of ``ranks`` accelerators busy for ``hours`` in an Azure region (None: averages)."""
    if accelerator.watts is None:
        return Energy(kilowatt_hours=None, carbon_kilograms=None, assumption="power of the accelerator is unknown")
    place = grid(region)
    kilowatt_hours = accelerator.watts / 1000 * DRAWN * place.pue * ranks * hours
    return Energy(
        kilowatt_hours=kilowatt_hours,
        carbon_kilograms=kilowatt_hours * place.kg_per_kwh,
        assumption=f"{accelerator.watts:.0f} W a GPU x {DRAWN:.0%} x PUE {place.pue}; "
        f"{place.kg_per_kwh} kg CO2/kWh, {place.words}",
    )
