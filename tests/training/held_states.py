"""One rank that builds engines, takes a step with each, and prints the bytes of state it holds.

``python held_states.py JOB [JOB ...]``: rank 0 prints a JSON object a job, ``{parameters, gradients, optimizer}``.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from launcher.training.assignment import read_assignment
from launcher.training.batches import MicroBatch
from launcher.training.engines.engine import engine_maker
from launcher.training.ranks import join, leave, read_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from launcher.training.engines.engine import Engine


def held(job: Path) -> dict[str, int]:
    """Bytes of one rank, after backward (parameters, gradients) and after the update (optimizer state)."""
    assignment = read_assignment(job, world_size=dist.get_world_size())
    ranks = read_ranks(os.environ, local_world_size=dist.get_world_size(), uses_gpu=False)
    engine = engine_maker(assignment.recipe)(assignment.recipe, assignment.plan, ranks)
    training = assignment.recipe.training
    tokens = torch.zeros(training.micro_batch_size, training.seq_length, dtype=torch.long)
    batch = MicroBatch(tokens, tokens, torch.arange(training.seq_length)[None], torch.tensor(float(tokens.numel())))
    engine.forward_backward([batch])
    parameters = model_parameters(engine)
    found = {
        "parameters": stored(getattr(parameter, "ds_tensor", parameter) for parameter in parameters),
        "gradients": stored(parameter.grad for parameter in parameters if parameter.grad is not None),
    }
    engine.step(1e-3)
    known = {pointer(parameter) for parameter in parameters}
    return found | {"optimizer": stored(each for each in optimizer_state(engine) if pointer(each) not in known)}


def model_parameters(engine: Engine) -> list[nn.Parameter]:
    """Of every module the engine reaches, each once."""
    modules = [each for each in reached(engine) if isinstance(each, nn.Module)]
    return list({id(weight): weight for module in modules for weight in module.parameters()}.values())


def optimizer_state(engine: Engine) -> list[torch.Tensor]:
    """What torch's optimizers keep, and the (fp32) weights they update."""
    optimizers = [each for each in reached(engine) if isinstance(each, torch.optim.Optimizer)]
    kept = [value for one in optimizers for state in one.state.values() for value in state.values()]
    masters = [weight for one in optimizers for group in one.param_groups for weight in group["params"]]
    # ZeRO-3 takes them out of the groups between updates.
    masters += [flat for each in reached(engine) for flat in vars_of(each).get("fp32_partitioned_groups_flat", ())]
    return [each for each in (*kept, *masters) if isinstance(each, torch.Tensor) and each.dim() > 0]


def vars_of(each: Any) -> dict[str, Any]:
    """An object's own attributes: none of those that answer to any name (types, modules, lazy proxies)."""
    return getattr(each, "__dict__", {}) if type(each).__module__.startswith("deepspeed.") else {}


def reached(engine: Engine, *, steps: int = 4) -> list[Any]:
    """Objects of ours, torch's and DeepSpeed's within a few references of the engine."""
    found: dict[int, Any] = {}
    edge: list[Any] = [engine]
    for _ in range(steps):
        edge = [each for each in gc.get_referents(*edge) if id(each) not in found and not isinstance(each, type)]
        found |= {id(each): each for each in edge}
    return list(found.values())


def stored(tensors: Iterable[torch.Tensor | None]) -> int:
    """Bytes of distinct storages, of DTensors the local part."""
    local = [getattr(tensor, "_local_tensor", tensor) for tensor in tensors if tensor is not None]
    return sum({pointer(tensor): tensor.untyped_storage().nbytes() for tensor in local}.values())


def pointer(tensor: torch.Tensor) -> int:
    """Where a tensor's storage lies."""
    return int(getattr(tensor, "_local_tensor", tensor).untyped_storage().data_ptr())


def main() -> int:
    join(read_ranks(os.environ, local_world_size=int(os.environ["WORLD_SIZE"]), uses_gpu=False))
    for job in sys.argv[1:]:
        found = held(Path(job))
        Path(job).with_name(f"held-{dist.get_rank()}.json").write_text(json.dumps(found))
    leave()
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)
