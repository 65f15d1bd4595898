"""Carbon of electricity by Azure region, and the overhead of datacentres. Location-based yearly averages.

Grid: cloud-carbon-footprint@f584c549ee35 (Apache-2.0), which takes EPA eGRID for the US NERC regions and national
averages elsewhere; read 2026-11-30. PUE: datacenters.microsoft.com/sustainability/efficiency, as of 2025-10-16.
"""

from __future__ import annotations

from typing import NamedTuple

PUE = 1.16
"""Power usage effectiveness, Microsoft's global average."""
PUE_BY_REGION = {
    "eastus": 1.14,
    "eastus2": 1.14,
    "southcentralus": 1.28,
    "northcentralus": 1.25,
    "centralus": 1.16,
    "westcentralus": 1.12,
    "westus2": 1.16,
    "westus3": 1.13,
    "northeurope": 1.18,
    "westeurope": 1.14,
    "swedencentral": 1.16,
    "polandcentral": 1.19,
    "southeastasia": 1.3,
}
"""By the state or country of the region: Virginia, Texas, Illinois, Iowa, Wyoming, Washington, Arizona, ..."""

_SERC, _RFC, _TRE, _WECC, _MRO = 0.3651, 0.3761, 0.3342, 0.2987, 0.3910
KG_PER_KWH = {
    "eastus": _SERC,
    "eastus2": _SERC,
    "eastus3": _SERC,
    "northcentralus": _RFC,
    "southcentralus": _TRE,
    "centralus": _MRO,
    "westcentralus": _WECC,
    "westus": _WECC,
    "westus2": _WECC,
    "westus3": _WECC,
    "northeurope": 0.316,
    "westeurope": 0.39,
    "uksouth": 0.228,
    "ukwest": 0.228,
    "centralindia": 0.708,
    "southindia": 0.708,
    "westindia": 0.708,
    "eastasia": 0.81,
    "southeastasia": 0.4085,
}
UNKNOWN_KG_PER_KWH = 0.4074
"""The same source's value for a region it does not know."""


class Grid(NamedTuple):
    """Electricity where a region is."""

    kg_per_kwh: float
    pue: float
    words: str
    """Which figures were taken."""


def grid(region: str | None) -> Grid:
    """The grid of an Azure region, in any spelling ("East US", ``eastus``); averages for one that is not known."""
    name = (region or "").lower().replace(" ", "")
    carbon, pue = KG_PER_KWH.get(name), PUE_BY_REGION.get(name, PUE)
    where = name if carbon is not None else "an unknown region"
    return Grid(UNKNOWN_KG_PER_KWH if carbon is None else carbon, pue, f"grid of {where}")
