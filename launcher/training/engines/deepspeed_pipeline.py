"""DeepSpeed's pipeline engine around our stages: its schedule and its ZeRO-0 and ZeRO-1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from launcher.training.decoder import build_on_meta, rebuild, speed_up
from launcher.training.engines.deepspeed_held import DeepSpeedHeld
from launcher.training.engines.deepspeed_ranks import mark
from launcher.training.engines.deepspeed_state import open_state
from launcher.training.initial import draw
from launcher.training.optimizer import parameter_groups
from launcher.training.parallel.apply import divide
from launcher.training.parallel.pipeline import Relay, Stage, boundary, layers_of, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.recipe.schema import Recipe
    from launcher.training.batches import MicroBatch
    from launcher.training.decoder import Decoder
    from launcher.training.parallel.groups import Groups
    from launcher.training.ranks import Ranks


class _Layer(nn.Module):
    """A whole stage as the one layer DeepSpeed knows of it; micro batches come in order, their fields from a queue."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.queue: list[MicroBatch] = []

    def forward(self, received: Any) -> Any:
        """Hidden states in and out; the last stage's are its loss."""
        hidden = received if isinstance(received, tuple) else (received,)
        return self.stage(*hidden, **rows([self.queue.pop(0)]))


class DeepSpeedPipelineEngine(DeepSpeedHeld):
    """One stage on each pipeline rank."""

    def __init__(self, deepspeed: Any, recipe: Recipe, config: dict[str, Any], ranks: Ranks, groups: Groups) -> None:
        super().__init__(recipe, _make_stage(recipe, ranks, groups), config, groups)
        speed_up(self.decoder, ranks.device)
        self.layer = _Layer(Stage(self.decoder))
        module = _pipeline_module(self.layer, groups)
        mark(self.decoder, groups)
        regions = self.decoder.regions
        dimensions = {name: len(region.shape) for name, region in regions.items()}
        named = list(self.decoder.named_weights())
        parameters = parameter_groups(named, recipe.training.optimizer, dimensions=dimensions)
        self.engine, *_ = deepspeed.initialize(model=module, model_parameters=parameters, config=config)
        # The loop decides when to update, after it has seen the loss.
        schedule = deepspeed.runtime.pipe.schedule
        instructions = {**self.engine._INSTRUCTION_MAP, schedule.OptimizerStep: lambda *_, **__: None}
        self.engine._INSTRUCTION_MAP = instructions
        rebuild(self.decoder, ranks.device)
        layout, axis = recipe.parallelism, groups.pipeline
        self.relay = Relay([self.layer.stage], layout, axis, boundary=boundary(recipe, groups))
        self.state = open_state(self.engine.optimizer, self.decoder, regions)
        draw(self.pieces(), recipe)
        self.restored(0, {})

    def forward_backward(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """See Engine. One rank of the pipeline has the loss."""
        self.layer.queue = list(batches)
        self.engine.train_batch(iter([(batch.inputs, batch.labels) for batch in batches]))
        return self.relay.loss(batches) * self.groups.pipeline.size

    def _update(self) -> None:
        self.engine._exec_optimizer_step()

    @torch.no_grad()
    def evaluate(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """See Engine."""
        self.layer.eval()
        loss = self.relay.evaluate(batches) * self.groups.pipeline.size
        self.layer.train()
        return loss


def _make_stage(recipe: Recipe, ranks: Ranks, groups: Groups) -> Decoder:
    """This rank's layers, with memory but without values."""
    axis, count = groups.pipeline, groups.pipeline.size
    decoder = build_on_meta(recipe)
    layers = layers_of(axis.rank, stages=count, layers=recipe.model.num_hidden_layers)
    decoder.keep(layers, is_first=axis.rank == 0, is_last=axis.rank == count - 1)
    if groups.tensor.size > 1:
        divide(decoder, groups, is_sequence_parallel=recipe.parallelism.sequence_parallel)
    decoder.to_empty(device=ranks.device)
    rebuild(decoder, ranks.device)
    return decoder


def _pipeline_module(layer: _Layer, groups: Groups) -> Any:
    """The stage as DeepSpeed's module of as many layers as stages; each rank builds its own alone."""
    from deepspeed.pipe import PipelineModule
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

    decoder = layer.stage.decoder
    tied = decoder.embedding if decoder.embedding is not None else decoder.head
    is_end = decoder.recipe.model.tie_word_embeddings and tied is not None

    class OneLayerAStage(PipelineModule):  # type: ignore[misc]
        def get_tied_weights_and_groups(self) -> list[tuple[Any, Any]]:
            return [(tied.weight, groups.tied)] if is_end else []

    sizes = {"num_pp": groups.pipeline.size, "num_mp": groups.tensor.size, "num_dp": groups.data.size}
    return OneLayerAStage(
        layers=[layer] * groups.pipeline.size,
        topology=PipeModelDataParallelTopology(**sizes),
        loss_fn=lambda objective, _: objective.sum(),
        partition_method="uniform",
        activation_checkpoint_interval=0,
    )
