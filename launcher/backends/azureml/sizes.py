"""The VM size of a job, and the shared memory its container gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.catalog import vm_sizes
from launcher.plan.shared_memory import shm_size
from launcher.recipe.schema import Cluster

if TYPE_CHECKING:
    from launcher.catalog.vm_size import VmSize
    from launcher.job.spec import JobSpec


def size_of(job: JobSpec) -> VmSize:
    """The catalogue's row of the job's VM size; PlanError with near misses when there is none."""
    return vm_sizes.find(job.instance_type)


def shared_memory(job: JobSpec) -> str:
    """What the recipe asks, else what fits the VM; always said, since Azure ML's own default is 2g whatever the VM."""
    return job.shm_size or shm_size(Cluster(), size_of(job))
