"""torch's own: FSDP2 over data (and context) ranks, around tensor, expert and pipeline parallelism."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from launcher.training.decoder import build_on_meta, rebuild, speed_up
from launcher.training.engines.local_optimizer import Holding, LocalOptimizer
from launcher.training.initial import draw
from launcher.training.parallel.apply import HEAD_NORMS, divide
from launcher.training.parallel.groups import make_groups
from launcher.training.parallel.pipeline import (
    Pipeline,
    Stage,
    boundary,
    has_ends_apart,
    layers_of,
    rows,
    stage_numbers,
)
from launcher.training.pieces import Region
from launcher.training.ranks import LOW_PRECISION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh

    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe
    from launcher.training.batches import MicroBatch
    from launcher.training.decoder import Decoder
    from launcher.training.parallel.groups import Groups
    from launcher.training.pieces import Piece
    from launcher.training.ranks import Ranks


def make_engine(recipe: Recipe, plan: Plan, ranks: Ranks) -> FsdpEngine:
    """The engine of ``parallelism.engine: fsdp``."""
    shard = plan.topology.shard_group_size if recipe.parallelism.zero_stage else 1
    return FsdpEngine(recipe, plan, ranks, make_groups(plan.topology, ranks, shard=shard))


class FsdpEngine:
    """Stages of a decoder, each cut by tensor and expert ranks and sharded over data and context ranks.

    ``zero_stage`` 3 gathers parameters anew in the backward pass, 1 and 2 keep them, 0 shards nothing.
    """

    def __init__(self, recipe: Recipe, plan: Plan, ranks: Ranks, groups: Groups) -> None:
        self.recipe, self.ranks, self.groups = recipe, ranks, groups
        self.portions = plan.batch.gradient_accumulation_steps
        self.stages = [Stage(decoder) for decoder in self._make_decoders()]
        self.decoders = [stage.decoder for stage in self.stages]
        for stage in self.stages:
            speed_up(stage.decoder, ranks.device)
            self._shard(stage)
            stage.to_empty(device=ranks.device)
            rebuild(stage.decoder, ranks.device)
        self.optimizer = LocalOptimizer(self._holdings(), recipe.training)
        draw(self.pieces(), recipe)
        self.pipeline = self._pipeline() if groups.pipeline.size > 1 else None

    def _make_decoders(self) -> Iterator[Decoder]:
        """This rank's stages, on the meta device."""
        axis, recipe = self.groups.pipeline, self.recipe
        numbers = stage_numbers(recipe.parallelism, axis)
        count = axis.size * len(numbers)
        for number in numbers:
            decoder = build_on_meta(recipe, context=self.groups.context)
            layers = layers_of(number, stages=count, layers=recipe.model.num_hidden_layers)
            decoder.keep(layers, is_first=number == 0, is_last=number == count - 1)
            divide(decoder, self.groups, is_sequence_parallel=recipe.parallelism.sequence_parallel)
            yield decoder

    def _shard(self, stage: Stage) -> None:
        """Each layer gathers on its own; the embedding too, unless the head is tied to it."""
        decoder, replicas = stage.decoder, self.groups.replicas
        for layer in decoder.layers:
            if self.groups.expert.size > 1:
                self._fully_shard(layer.mlp.experts, self.groups.expert_replicas)
            self._fully_shard(layer, replicas)
        if decoder.embedding is not None and not decoder.is_tied_here:
            self._fully_shard(decoder.embedding, replicas)
        self._fully_shard(stage, replicas)

    def _fully_shard(self, module: nn.Module, mesh: DeviceMesh) -> None:
        precision, size = self.recipe.training.precision, mesh["shard"].size()
        policy = MixedPrecisionPolicy(
            param_dtype=LOW_PRECISION.get(precision), reduce_dtype=torch.float32, cast_forward_inputs=False
        )
        fully_shard(
            module,
            mesh=mesh,
            mp_policy=policy,
            reshard_after_forward=self.recipe.parallelism.zero_stage == 3,
            shard_placement_fn=lambda parameter: _placement(parameter, size),
        )

    def _holdings(self) -> Iterator[Holding]:
        """Every parameter of this rank, and who else has what of it."""
        for stage in self.stages:
            decoder = stage.decoder
            for number, (name, parameter) in enumerate(decoder.named_weights()):
                region, is_experts = decoder.regions[name], ".experts." in name
                mesh = self.groups.expert_replicas if is_experts else self.groups.replicas
                is_uncut = region.is_whole
                is_copy = decoder.has_tied_copy and parameter is decoder.head.weight
                yield Holding(
                    name=name,
                    parameter=parameter,
                    region=_local_region(region, parameter),
                    copies=mesh["replicate"].size() * (self.groups.tensor.size if is_uncut else 1),
                    is_written=not is_copy and self._writes(number, mesh, is_uncut=is_uncut),
                    is_counted=not is_copy,
                    # A rank's experts have seen the tokens of all expert ranks; FSDP averages over the others.
                    factor=1 / self.groups.expert.size if is_experts else 1.0,
                    summed_over=self._summed_over(name, is_uncut=is_uncut),
                )

    def _writes(self, number: int, mesh: DeviceMesh, *, is_uncut: bool) -> bool:
        """Ranks that have the same block take turns."""
        tensor = self.groups.tensor
        is_turn = number % tensor.size == tensor.rank if is_uncut else True
        return is_turn and number % mesh["replicate"].size() == mesh["replicate"].get_local_rank()

    def _summed_over(self, name: str, *, is_uncut: bool) -> tuple[dist.ProcessGroup, ...]:
        """Tensor ranks see other tokens (sequence parallel) or other heads (norms of query and key) of a parameter."""
        groups = self.groups
        is_partial = self.recipe.parallelism.sequence_parallel or name.endswith(HEAD_NORMS)
        over = [groups.tensor.group] if is_uncut and is_partial else []
        if self.recipe.model.tie_word_embeddings and name == self.stages[0].decoder.embedding_name:
            over.append(groups.tied if has_ends_apart(self.recipe.parallelism) else None)
        return tuple(group for group in over if group is not None)

    def _pipeline(self) -> Pipeline:
        layout, axis = self.recipe.parallelism, self.groups.pipeline
        return Pipeline(
            self.stages, layout, axis, micro_batches=self.portions, boundary=boundary(self.recipe, self.groups)
        )

    def forward_backward(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """See Engine."""
        for stage in self.stages:
            stage.train()
            # FSDP averages over data and context ranks; context ranks have parts of one loss.
            stage.scale = self.optimizer.loss_scale * self.groups.context.size / self.portions
        if self.pipeline:
            return self._shared(self.pipeline.forward_backward(batches))
        (stage,) = self.stages
        stage.cross_entropies.clear()
        for number, batch in enumerate(batches, start=1):
            self._synchronise(stage, is_last=number == len(batches))
            stage(**rows([batch])).sum().backward()
        return self._shared(torch.stack(stage.cross_entropies).mean())

    def _synchronise(self, stage: Any, *, is_last: bool) -> None:
        """Before the last micro batch: no all-reduce among copies, and below ZeRO-3 no reduce-scatter either.

        ZeRO-3 has no memory for whole gradients, so it scatters those of every micro batch.
        """
        stage.set_is_last_backward(is_last)
        if self.recipe.parallelism.zero_stage == 3:
            stage.set_requires_all_reduce(is_last)
        else:
            stage.set_requires_gradient_sync(is_last)

    def step(self, learning_rate: float) -> float:
        """See Engine."""
        return self.optimizer.step(learning_rate)

    @property
    def tolerates_overflow(self) -> bool:
        """See Engine."""
        return self.optimizer.tolerates_overflow

    @torch.no_grad()
    def evaluate(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """See Engine."""
        for stage in self.stages:
            stage.eval()
        if self.pipeline:
            return self._shared(self.pipeline.relay.evaluate(batches))
        (stage,) = self.stages
        stage.cross_entropies.clear()
        for batch in batches:
            stage(**rows([batch]))
        return self._shared(torch.stack(stage.cross_entropies).mean())

    def _shared(self, loss: torch.Tensor) -> torch.Tensor:
        """A loss whose mean over all ranks is the mean loss: context ranks have parts, one pipeline rank has it all."""
        return loss * (self.groups.context.size * self.groups.pipeline.size)

    def pieces(self) -> Iterable[Piece]:
        """See Engine."""
        return self.optimizer.pieces()

    def scalars(self) -> dict[str, float]:
        """See Engine."""
        return self.optimizer.scalars()

    def restored(self, step: int, scalars: dict[str, float]) -> None:
        """See Engine."""
        self.optimizer.restored(step, scalars)

    def artifacts(self) -> dict[str, str]:
        """See Engine."""
        return {}


def _placement(parameter: nn.Parameter, ranks: int) -> Shard:
    """Rows, unless there are too few (stacked experts) and the next axis divides evenly."""
    if parameter.ndim > 1 and parameter.shape[0] < ranks and parameter.shape[1] % ranks == 0:
        return Shard(1)
    return Shard(0)


def _local_region(region: Region, parameter: nn.Parameter) -> Region:
    """The part of this rank's block that FSDP left it."""
    assert isinstance(parameter, DTensor)
    placement = parameter.placements[-1]
    assert isinstance(placement, Shard)
    size, offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    return Region(
        shape=region.shape,
        offset=tuple(first + inner for first, inner in zip(region.offset, offset, strict=True)),
        size=tuple(size),
    )
