"""This process among all: its rank, its device, and the process group it joins and leaves."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

if TYPE_CHECKING:
    from collections.abc import Mapping

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""A rank that waits longer for the others gives up; saving a large model is the longest wait."""


LOW_PRECISION = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}
"""What is computed in beside fp32 master weights, by the recipe's word; under fp8 all but the large products."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """What the starter of this process said in its environment, as torchrun and Azure ML say it."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, the one that speaks for all."""
        return self.rank == 0


def world_size(environment: Mapping[str, str]) -> int:
    """``WORLD_SIZE``; 1 for a process started by hand."""
    return int(environment.get("WORLD_SIZE", "1"))


def read_ranks(environment: Mapping[str, str], *, local_world_size: int, uses_gpu: bool) -> Ranks:
    """This process's ranks; one alone when nothing is set."""
    rank, local_rank = int(environment.get("RANK", "0")), int(environment.get("LOCAL_RANK", "0"))
    has_gpu = uses_gpu and torch.cuda.is_available()
    return Ranks(
        rank=rank,
        local_rank=local_rank,
        world_size=world_size(environment),
        local_world_size=local_world_size,
        device=torch.device("cuda", local_rank) if has_gpu else torch.device("cpu"),
    )


def share_cores(ranks: Ranks) -> None:
    """Give this process its share of the machine's cores, unless ``OMP_NUM_THREADS`` decided."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks.local_world_size))


def join(ranks: Ranks) -> None:
    """Join the process group. A process alone makes a group of one in itself, so that nothing else differs."""
    if ranks.device.type == "cuda":
        torch.cuda.set_device(ranks.device)
    backend = "cpu:gloo,cuda:nccl" if ranks.device.type == "cuda" else "gloo"
    if "MASTER_ADDR" in os.environ:
        dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT)
    else:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)


def leave() -> None:
    """Leave the process group with the others, so that none finds its peer gone."""
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
