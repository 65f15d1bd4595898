"""DeepSpeed: ZeRO stages 0 to 3 under a configuration generated from the recipe."""

from __future__ import annotations

import logging
import os
import warnings
from typing import TYPE_CHECKING, Any

import torch

from launcher.errors import Fault
from launcher.plan.deepspeed_config import deepspeed_config
from launcher.training.decoder import build_in_place, build_on_meta, rebuild, speed_up
from launcher.training.engines.deepspeed_held import DeepSpeedHeld
from launcher.training.engines.deepspeed_ranks import Mpu, mark
from launcher.training.engines.deepspeed_state import open_state
from launcher.training.errors import TrainingError
from launcher.training.initial import draw
from launcher.training.optimizer import parameter_groups
from launcher.training.parallel.apply import divide
from launcher.training.parallel.groups import make_groups
from launcher.training.pieces import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Parallelism, Recipe
    from launcher.training.batches import MicroBatch
    from launcher.training.decoder import Decoder
    from launcher.training.engines.engine import Engine
    from launcher.training.parallel.groups import Groups
    from launcher.training.pieces import Region
    from launcher.training.ranks import Ranks


def make_engine(recipe: Recipe, plan: Plan, ranks: Ranks) -> Engine:
    """The engine of ``parallelism.engine: deepspeed``.

    Raises:
        TrainingError: DeepSpeed has no such combination.
    """
    _check(recipe.parallelism)
    deepspeed = _import_deepspeed(ranks)
    config = deepspeed_config(recipe, plan.topology, plan.batch)
    groups = make_groups(plan.topology, ranks, shard=1)
    if groups.pipeline.size > 1:
        from launcher.training.engines.deepspeed_pipeline import DeepSpeedPipelineEngine

        return DeepSpeedPipelineEngine(deepspeed, recipe, config, ranks, groups)
    if recipe.parallelism.zero_stage == 3:
        decoder = _build_partitioned(deepspeed, recipe, config, groups)
    else:
        decoder = build_on_meta(recipe, context=groups.context)
        if groups.tensor.size > 1:
            divide(decoder, groups, is_sequence_parallel=recipe.parallelism.sequence_parallel)
        decoder.to_empty(device=ranks.device)
        rebuild(decoder, ranks.device)
        mark(decoder, groups)
    return DeepSpeedEngine(deepspeed, recipe, decoder, config, ranks, groups)


def _check(layout: Parallelism) -> None:
    """Refuse what only fsdp does, before anything is built."""
    asked = {
        "parallelism.expert_parallel_size": layout.expert_parallel_size > 1,
        "parallelism.virtual_pipeline_parallel_size": (layout.virtual_pipeline_parallel_size or 1) > 1,
        "parallelism.context_parallel_size": layout.context_parallel_size > 1 and layout.pipeline_parallel_size > 1,
    }
    faults = [
        Fault(what=f"engine deepspeed cannot do {key} here", keys=(key,), suggestion="parallelism.engine=fsdp")
        for key, is_asked in asked.items()
        if is_asked
    ]
    if faults:
        raise TrainingError(faults)


def _import_deepspeed(ranks: Ranks) -> Any:
    """DeepSpeed, joined to torch's process group, without compiling its shared-memory all-reduce (60 s) on a CPU."""
    if ranks.device.type == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # DeepSpeed 0.19 calls collectives by names that torch 2.13 is about to retire, many times a step.
    warnings.filterwarnings("ignore", "`torch.distributed.*is deprecated", FutureWarning)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.ops.__compatible_ops__["shm_comm"] = False
    deepspeed.init_distributed(dist_backend="nccl" if ranks.device.type == "cuda" else "gloo")
    return deepspeed


def _build_partitioned(deepspeed: Any, recipe: Recipe, config: dict[str, Any], groups: Groups) -> Decoder:
    """The model with each parameter partitioned as soon as it is made, so that no rank ever holds all of it.

    ``zero.Init`` leaves weights unset where transformers would draw them; they are drawn afterwards.
    """
    import transformers.modeling_utils  # noqa: F401

    mpu = Mpu(groups) if groups.context.size > 1 else None
    with deepspeed.zero.Init(config_dict_or_path=config, mpu=mpu):
        return build_in_place(recipe, context=groups.context)


class DeepSpeedEngine(DeepSpeedHeld):
    """A model and optimizer owned by DeepSpeed."""

    def __init__(
        self, deepspeed: Any, recipe: Recipe, decoder: Decoder, config: dict[str, Any], ranks: Ranks, groups: Groups
    ) -> None:
        super().__init__(recipe, decoder, config, groups)
        self.ranks = ranks
        regions = {name: _region(decoder, name, parameter) for name, parameter in decoder.named_weights()}
        dimensions = {name: len(region.shape) for name, region in regions.items()}
        parameters = parameter_groups(decoder.named_weights(), recipe.training.optimizer, dimensions=dimensions)
        mpu = Mpu(groups) if max(groups.tensor.size, groups.context.size) > 1 else None
        self.engine, *_ = deepspeed.initialize(model=decoder, model_parameters=parameters, config=config, mpu=mpu)
        rebuild(decoder, ranks.device)  # DeepSpeed casts them to the model's precision
        # ZeRO-3 averages over data and context ranks where it scatters gradients (reduce_scatter_coalesced), the other
        # stages over data ranks alone; context ranks have parts of one loss.
        is_averaged = bool(config["zero_optimization"].get("reduce_scatter")) and recipe.parallelism.zero_stage == 3
        self.scale = groups.context.size if is_averaged else 1
        speed_up(decoder, ranks.device)
        self.state = open_state(self.engine.optimizer, decoder, regions)
        draw(self.pieces(), recipe)
        self.restored(0, {})

    def forward_backward(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """See Engine. DeepSpeed divides by the accumulation itself and counts micro batches in ``step``."""
        self.engine.train()
        total = torch.zeros((), device=self.ranks.device)
        for number, batch in enumerate(batches, start=1):
            losses = self.engine(batch)
            self.engine.backward(losses.objective * self.scale)
            if number < len(batches):
                self.engine.step()
            total += losses.cross_entropy / len(batches)
        return total * self.groups.context.size  # context ranks have parts of one loss

    @torch.no_grad()
    def evaluate(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """See Engine."""
        self.engine.eval()
        losses = [self.engine(batch).cross_entropy for batch in batches]
        return torch.stack(losses).mean() * self.groups.context.size


def _region(decoder: Decoder, name: str, parameter: Any) -> Region:
    """Of the whole parameter, also where ZeRO-3 has left a placeholder."""
    return whole(tuple(parameter.ds_shape)) if hasattr(parameter, "ds_shape") else decoder.regions[name]
