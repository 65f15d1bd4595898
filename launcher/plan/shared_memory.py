"""Shared memory of the job's container: never Azure ML's default of 2g, which kills loader workers (bus error)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.catalog.vm_size import VmSize
    from launcher.recipe.schema import Cluster

GIB_PER_GPU = 8
_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def shm_size(cluster: Cluster, size: VmSize) -> str:
    """``64g``: as the recipe asks, else 8 GiB a GPU, at least 16 and at most half of the VM's memory."""
    if cluster.shm_size is not None:
        return cluster.shm_size
    wanted = max(16, GIB_PER_GPU * size.gpus)
    return f"{wanted if size.ram_gib is None else min(wanted, int(size.ram_gib // 2))}g"


def shm_bytes(text: str) -> int:
    """Bytes of ``64g`` (binary units, bytes without a unit)."""
    unit = text[-1].lower()
    return int(text[:-1]) * _UNITS[unit] if unit in _UNITS else int(text)
