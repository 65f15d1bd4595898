"""Electricity and carbon: thermal design power x share drawn x datacentre overhead x grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.catalog.grid import PUE, kg_per_kwh
from launcher.plan.plan import Energy

if TYPE_CHECKING:
    from launcher.catalog.accelerator import Accelerator

DRAWN = 0.9
"""Share of thermal design power a busy GPU draws on average; hosts and network are left out."""


def make_energy(accelerator: Accelerator, *, ranks: int, hours: float, region: str | None) -> Energy:
    """Energy of ``ranks`` accelerators busy for ``hours``."""
    if accelerator.watts is None:
        return Energy(kilowatt_hours=None, carbon_kilograms=None, assumption="power of the accelerator is unknown")
    kilowatt_hours = accelerator.watts / 1000 * DRAWN * PUE * ranks * hours
    carbon, source = kg_per_kwh(region)
    return Energy(
        kilowatt_hours=kilowatt_hours,
        carbon_kilograms=kilowatt_hours * carbon,
        assumption=f"{accelerator.watts:.0f} W a GPU x {DRAWN:.0%} x PUE {PUE}; {carbon} kg CO2/kWh, {source}",
    )
