"""Pipeline parallelism: stages of consecutive layers, and torch's schedules over them.

Shapes: M micro batches of B sequences of L tokens, H hidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from launcher.training.batches import MicroBatch
from launcher.training.ranks import LOW_PRECISION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.recipe.schema import Parallelism, Recipe
    from launcher.training.decoder import Decoder
    from launcher.training.parallel.groups import Axis, Groups


class Stage(nn.Module):
    """A decoder's layers as torch's pipeline wants them: tensors in, tensors out, nothing that cannot be cut by row."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.scale = 1.0
        """Factor of the objective of one micro batch."""
        self.cross_entropies: list[torch.Tensor] = []

    def forward(self, *received: torch.Tensor, **fields: torch.Tensor) -> Any:
        """Hidden states (with experts, also the balance loss so far) in and out; the last stage gives its loss [1]."""
        decoder, batch = self.decoder, _batch(fields)
        has_experts = bool(decoder.recipe.model.num_local_experts)
        hidden = decoder.embed(batch) if decoder.embedding is not None else received[0]
        hidden, balance = decoder.run_layers(hidden, batch)
        if decoder.embedding is None and has_experts:
            balance = balance + received[1].squeeze(0)
        if decoder.head is None:
            return (hidden, balance[None]) if has_experts else hidden
        losses = decoder.losses(hidden, balance, batch)
        self.cross_entropies.append(losses.cross_entropy)
        return losses.objective[None] * self.scale


def boundary(recipe: Recipe, groups: Groups) -> torch.Tensor:
    """What one stage hands to the next for a micro batch, on the meta device: [B, L, H]."""
    training = recipe.training
    length = training.seq_length // groups.context.size
    if recipe.parallelism.sequence_parallel:
        length //= groups.tensor.size
    dtype = LOW_PRECISION.get(training.precision, torch.float32)
    return torch.empty(training.micro_batch_size, length, recipe.model.hidden_size, dtype=dtype, device="meta")


def stage_numbers(layout: Parallelism, axis: Axis) -> list[int]:
    """Which stages this pipeline rank has, in the order it runs them.

    Interleaved stages go round the ranks; the zero-bubble V of two per rank goes down and comes back
    (Qi et al., arXiv:2401.10241 and arXiv:2405.15362).
    """
    virtual = layout.virtual_pipeline_parallel_size or 1
    if layout.pipeline_schedule == "zero_bubble" and virtual == 2:
        return [axis.rank, 2 * axis.size - 1 - axis.rank]
    return [axis.rank + axis.size * round_ for round_ in range(virtual)]


def owner(layout: Parallelism, stage: int, size: int) -> int:
    """The pipeline rank of a stage."""
    virtual = layout.virtual_pipeline_parallel_size or 1
    if layout.pipeline_schedule == "zero_bubble" and virtual == 2:
        return stage if stage < size else 2 * size - 1 - stage
    return stage % size


def has_ends_apart(layout: Parallelism) -> bool:
    """Whether the first and the last stage are on different ranks: not in a V, nor where there is one rank."""
    size, virtual = layout.pipeline_parallel_size, layout.virtual_pipeline_parallel_size or 1
    return owner(layout, 0, size) != owner(layout, size * virtual - 1, size)


def layers_of(stage: int, *, stages: int, layers: int) -> range:
    """The layers of a stage: as many in each; earlier stages take what is left over."""
    share, rest = divmod(layers, stages)
    first = stage * share + min(stage, rest)
    return range(first, first + share + (stage < rest))


class Pipeline:
    """This rank's stages under one of torch's schedules."""

    def __init__(
        self,
        modules: Sequence[Stage],
        layout: Parallelism,
        axis: Axis,
        *,
        micro_batches: int,
        boundary: torch.Tensor,
    ) -> None:
        """``boundary``: what stages hand on, as an example [B, L, H] on the meta device."""
        self.relay = Relay(modules, layout, axis, boundary=boundary)
        count = len(self.relay.owners)
        stages = [_torch_stage(module, number, count, axis, boundary) for number, module in self.relay.modules.items()]
        self.schedule = _schedule(layout, stages, micro_batches)

    def forward_backward(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """Run the schedule; the mean cross-entropy of the micro batches on the rank of the last stage, else zero."""
        fields = rows(batches)
        arguments = (fields["inputs"],) if self.relay.has(0) else ()
        target = {"target": fields["labels"]} if self.relay.has(-1) else {}
        self.schedule.step(*arguments, **fields, **target)
        return self.relay.loss(batches)


class Relay:
    """Every micro batch from the first stage to the last, without gradients."""

    def __init__(self, modules: Sequence[Stage], layout: Parallelism, axis: Axis, *, boundary: torch.Tensor) -> None:
        numbers = stage_numbers(layout, axis)
        self.axis, self.boundary = axis, boundary
        self.modules = dict(zip(numbers, modules, strict=True))
        self.owners = [owner(layout, stage, axis.size) for stage in range(axis.size * len(numbers))]

    def has(self, stage: int) -> bool:
        """Whether a stage (-1 is the last) is on this rank."""
        return self.owners[stage] == self.axis.rank

    def evaluate(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """The mean cross-entropy on the rank of the last stage, else zero."""
        for batch in batches:
            hidden: tuple[torch.Tensor, ...] = ()
            for number in range(len(self.owners)):
                hidden = self._pass(number, hidden, rows([batch]))
        return self.loss(batches)

    def loss(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """Mean over what the last stage has computed since the last call."""
        found = [loss for module in self.modules.values() for loss in module.cross_entropies]
        for module in self.modules.values():
            module.cross_entropies.clear()
        return torch.stack(found).mean() if found else torch.zeros((), device=batches[0].inputs.device)

    def _pass(
        self, number: int, hidden: tuple[torch.Tensor, ...], fields: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """Run stage ``number`` if it is here, and hand its output to the owner of the next."""
        if not self.has(number):
            return ()
        if number and not hidden:
            hidden = (torch.empty_like(self.boundary, device=fields["inputs"].device), fields["targets"].new_zeros(1))
            dist.recv(hidden[0], self._global(number - 1), group=self.axis.group)
        output = self.modules[number](*hidden, **fields)
        if number == len(self.owners) - 1:
            return ()
        output = output if isinstance(output, tuple) else (output,)
        if self.has(number + 1):
            return output
        dist.send(output[0].contiguous(), self._global(number + 1), group=self.axis.group)
        return ()

    def _global(self, stage: int) -> int:
        assert self.axis.group is not None
        return dist.get_global_rank(self.axis.group, self.owners[stage])


def rows(batches: Sequence[MicroBatch]) -> dict[str, torch.Tensor]:
    """Micro batches end to end, every field with a row a sequence."""
    count = batches[0].inputs.shape[0]
    names = ("inputs", "labels", "positions")
    fields = {name: torch.cat([getattr(batch, name) for batch in batches]) for name in names}
    fields["targets"] = torch.cat([batch.targets.expand(count) for batch in batches])
    if batches[0].documents is not None:
        fields["documents"] = torch.cat([batch.documents for batch in batches if batch.documents is not None])
    if batches[0].queries is not None:
        fields["queries"] = batches[0].queries.expand(len(batches) * count, -1)
    return fields


def _batch(fields: dict[str, torch.Tensor]) -> MicroBatch:
    """One micro batch out of its rows."""
    queries = fields.get("queries")
    return MicroBatch(
        inputs=fields["inputs"],
        labels=fields["labels"],
        positions=fields["positions"],
        targets=fields["targets"][0],
        documents=fields.get("documents"),
        queries=None if queries is None else queries[0],
    )


def _torch_stage(module: Stage, number: int, count: int, axis: Axis, boundary: torch.Tensor) -> PipelineStage:
    has_experts = bool(module.decoder.recipe.model.num_local_experts)
    balance = torch.empty(1, dtype=torch.float32, device="meta", requires_grad=True)
    boundary = boundary.detach().requires_grad_()  # says that gradients come back through it
    between = (boundary, balance) if has_experts else (boundary,)
    training, context = module.decoder.recipe.training, module.decoder.context
    length = training.seq_length // (context.size if context else 1)
    tokens = torch.empty(boundary.shape[0], length, dtype=torch.long, device="meta")
    device = next(module.parameters()).device
    return PipelineStage(
        module,
        number,
        count,
        device,
        input_args=(tokens,) if number == 0 else between,
        output_args=(balance,) if number == count - 1 else between,
        group=axis.group,
    )


def _schedule(layout: Parallelism, stages: list[Any], micro_batches: int) -> Any:
    """The recipe's schedule; one forward one backward needs a micro batch a stage, and is GPipe below that."""
    settings: dict[str, Any] = {"loss_fn": lambda objective, _: objective.sum(), "scale_grads": False}
    name = layout.pipeline_schedule or ("interleaved" if len(stages) > 1 else "1f1b")
    if len(stages) > 1:
        kinds = {"interleaved": ScheduleInterleaved1F1B, "zero_bubble": ScheduleInterleavedZeroBubble}
        kind = ScheduleZBVZeroBubble if name == "zero_bubble" and len(stages) == 2 else kinds[name]
        return kind(stages, micro_batches, **settings)
    if name == "zero_bubble":
        return ScheduleInterleavedZeroBubble(stages, micro_batches, **settings)
    is_short = micro_batches < stages[0].num_stages
    kind_of_one = ScheduleGPipe if name == "gpipe" or is_short else Schedule1F1B
    return kind_of_one(stages[0], micro_batches, **settings)
