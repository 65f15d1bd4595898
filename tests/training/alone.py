"""A training loop in this process, alone in its process group."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from launcher.plan.planner import make_plan
from launcher.training.assignment import Assignment
from launcher.training.loop import Loop
from launcher.training.ranks import join, read_ranks
from tests.training.runs import job_document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from launcher.recipe.schema import Recipe
    from launcher.tracking.tracker import Tracker


@contextmanager
def joined_alone() -> Iterator[None]:
    """A process group of one, on as many cores as there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    join(read_ranks({}, local_world_size=1, uses_gpu=False))
    try:
        yield
    finally:
        dist.destroy_process_group()
        torch.set_num_threads(threads)


def loop_of(recipe: Recipe, tracker: Tracker, output: Path) -> Loop:
    """The loop of ``recipe``, ready to run."""
    assignment = Assignment(document=job_document(recipe), recipe=recipe, plan=make_plan(recipe), resume_from=None)
    return Loop(assignment, read_ranks({}, local_world_size=1, uses_gpu=False), tracker, output=output)
