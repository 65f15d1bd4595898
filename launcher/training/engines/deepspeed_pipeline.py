"""DeepSpeed's pipeline engine around our stages: its schedule and its ZeRO-0 and ZeRO-1."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from launcher.training.decoder import build_on_meta, rebuild, speed_up
from launcher.training.engines.deepspeed_ranks import global_norm, mark, written_once
from launcher.training.engines.deepspeed_state import open_state
from launcher.training.initial import draw
from launcher.training.optimizer import parameter_groups, set_learning_rate, set_step
from launcher.training.parallel.apply import divide
from launcher.training.parallel.pipeline import Relay, Stage, boundary, layers_of, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from launcher.recipe.schema import Recipe
    from launcher.training.batches import MicroBatch
    from launcher.training.decoder import Decoder
    from launcher.training.parallel.groups import Groups
    from launcher.training.pieces import Piece
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


class DeepSpeedPipelineEngine:
    """One stage on each pipeline rank."""

    def __init__(self, deepspeed: Any, recipe: Recipe, config: dict[str, Any], ranks: Ranks, groups: Groups) -> None:
        self.recipe, self.config, self.ranks, self.groups = recipe, config, ranks, groups
        self.decoder = _make_stage(recipe, ranks, groups)
        self.decoders = (self.decoder,)
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

    def step(self, learning_rate: float) -> float:
        """See Engine. fp32 training without ZeRO does not tell the norm it clips by."""
        set_learning_rate(self.engine.optimizer, learning_rate)
        is_plain = self.engine.optimizer is self.state.optimizer
        norm = global_norm(self.decoder, self.groups) if is_plain else None
        self.engine._exec_optimizer_step()
        return float(self.engine.get_global_grad_norm() if norm is None else norm)

    @property
    def tolerates_overflow(self) -> bool:
        """See Engine."""
        return self.recipe.training.precision == "fp16"

    @torch.no_grad()
    def evaluate(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """See Engine."""
        self.layer.eval()
        loss = self.relay.evaluate(batches) * self.groups.pipeline.size
        self.layer.train()
        return loss

    def pieces(self) -> Iterable[Piece]:
        """See Engine."""
        return written_once(self.state.pieces(), self.decoder, self.groups, is_sharded=self.state.is_sharded)

    def scalars(self) -> dict[str, float]:
        """See Engine."""
        if self.recipe.training.precision != "fp16":
            return {}
        return {"loss_scale": float(self.engine.optimizer.loss_scale)}

    def restored(self, step: int, scalars: dict[str, float]) -> None:
        """See Engine."""
        self.state.refresh()
        set_step(self.state.optimizer, step)
        if "loss_scale" in scalars:
            self.engine.optimizer.loss_scale = scalars["loss_scale"]

    def artifacts(self) -> dict[str, str]:
        """See Engine."""
        return {"deepspeed_config.json": json.dumps(self.config, indent=2) + "\n"}


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
