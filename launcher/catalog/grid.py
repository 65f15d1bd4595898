"""Carbon of electricity by Azure region, kg CO2 per kWh, and the overhead of a datacentre."""

from __future__ import annotations

PUE = 1.16
"""Power usage effectiveness of Microsoft's datacentres, fiscal year 2024 (datacenters.microsoft.com/sustainability)."""
WORLD_KG_PER_KWH = 0.48
"""World average of 2023 (Ember, Global Electricity Review 2024)."""


def kg_per_kwh(region: str | None) -> tuple[float, str]:
    """Carbon per kWh in ``region`` and where the figure comes from."""
    del region
    return WORLD_KG_PER_KWH, "world average 2023 (Ember)"
