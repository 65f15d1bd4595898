"""One rank of a world that is not there: ``python shard_memory.py RECIPE RANK`` builds its engine and prints bytes.

Process groups are torch's fake ones, whose collectives do nothing: building and drawing weights need none.
Prints, as JSON, the bytes of parameters and moments that the rank holds, and by how much its resident set grew at most.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from launcher.plan.planner import make_plan
from launcher.recipe import codec
from launcher.training.decoder import build_on_meta
from launcher.training.engines.engine import engine_maker
from launcher.training.ranks import Ranks


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(recipe_file: Path, rank: int) -> None:
    recipe = codec.decode(json.loads(recipe_file.read_text()))
    plan = make_plan(recipe)
    world = plan.topology.world_size
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    ranks = Ranks(rank=rank, local_rank=0, world_size=world, local_world_size=world, device=torch.device("cpu"))
    make_engine = engine_maker(recipe)
    parameters = sum(parameter.numel() for parameter in build_on_meta(recipe).parameters())
    before = peak()
    engine = make_engine(recipe, plan, ranks)
    grown = peak() - before
    held = sum(piece.tensor.numel() * piece.tensor.element_size() for piece in engine.pieces())
    print(json.dumps({"parameters": parameters, "held": held, "grown": grown}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
