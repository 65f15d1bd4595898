"""``fold``: the same topology, small enough for a laptop.

Only width, depth, vocabulary, sequence, data, steps, peak learning rate and cluster shrink. What decides which code
runs stays: engine, every parallel axis above 1 (as 2), schedule, ZeRO stage, shard groups, experts, precision,
recomputation, accumulation, checkpoints. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from launcher.errors import PlanError
from launcher.plan.deepspeed_config import RECIPE_KEYS
from launcher.plan.fold_axes import fold_axes, shard_group
from launcher.plan.fold_words import folded_words, kept_words, not_shown_words
from launcher.plan.planner import make_plan
from launcher.recipe.schema import Cluster, Entry, Environment, Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.plan.fold_axes import Axes
    from launcher.plan.plan import Batch, Plan, Topology
    from launcher.recipe.schema import Checkpoint, Data, Model, Parallelism, Recipe, Training

SEQUENCE = 32
"""Tokens: divides into the four slices of 2-way ring attention and over two tensor ranks."""
VOCABULARY = 512
"""Holds the 257 tokens of the byte tokenizer (launcher/training/data/tokenizer.py) and divides over two ranks."""
STEPS = 20
CHECKPOINT_STEPS = 7
"""Two checkpoints before the last step: if a rank is not killed soon enough after the first, it is after the second."""
HEAD_WIDTH = 16
LEARNING_RATE = 3e-3
"""At least this: a model this narrow wants a higher peak than a wide one (arXiv:2203.03466, table 3: 1/width), and
20 steps at 6e-5 teach nothing."""


@dataclass(frozen=True, kw_only=True)
class Folded:
    """A recipe folded small."""

    recipe: Recipe
    kept: tuple[str, ...]
    """Keys that are as they were."""
    folded: tuple[str, ...]
    """What was made smaller: ``model.hidden_size 12288 -> 32``."""
    not_shown: tuple[str, ...]
    """What running this says nothing about."""


def fold(recipe: Recipe, *, processes: int = 8) -> Folded:
    """``recipe`` for at most ``processes`` CPU processes of this machine, one a rank.

    Raises:
        PlanError: the recipe has no plan, or runs a script of the team's own, whose model we do not know.
    """
    if recipe.entry.script is not None:
        raise PlanError(
            f"{recipe.entry.script} is a script of your own: only recipes of the built-in trainer can be folded",
            keys=("entry.script",),
            code="plan.fold_script",
        )
    plan = make_plan(recipe)
    axes, lost = fold_axes(plan.topology, recipe.parallelism, processes=processes)
    small = _fold_sections(recipe, plan, axes)
    return Folded(
        recipe=small,
        kept=kept_words(recipe, small),
        folded=folded_words(recipe, small, plan, make_plan(small)),
        not_shown=(*(f"{name}: takes more than {processes} ranks" for name in lost), *not_shown_words(recipe)),
    )


def _fold_sections(recipe: Recipe, plan: Plan, axes: Axes) -> Recipe:
    layout = _fold_layout(recipe.parallelism, plan.topology, axes)
    return replace(
        recipe,
        name=f"{recipe.name}-smoke",
        tags={},
        model=_fold_model(recipe.model, layout, axes),
        training=_fold_training(recipe.training, plan.batch, axes),
        parallelism=layout,
        data=_fold_data(recipe.data),
        cluster=Cluster(processes_per_instance=axes.world),
        environment=Environment(variables=recipe.environment.variables),
        checkpoint=_fold_checkpoint(recipe.checkpoint),
        tracking=replace(recipe.tracking, enabled=False, uri=None, log_interval_steps=1, system_metrics=False),
        limits=Limits(),
        entry=Entry(),
    )


def _fold_layout(layout: Parallelism, topology: Topology, axes: Axes) -> Parallelism:
    virtual = layout.virtual_pipeline_parallel_size
    has_pipeline = axes.pipeline > 1
    return replace(
        layout,
        tensor_parallel_size=axes.tensor,
        pipeline_parallel_size=axes.pipeline,
        virtual_pipeline_parallel_size=min(2, virtual) if virtual and has_pipeline else None,
        pipeline_schedule=layout.pipeline_schedule if has_pipeline else None,
        context_parallel_size=axes.context,
        expert_parallel_size=min(2, layout.expert_parallel_size, axes.data),
        data_parallel_size=layout.data_parallel_size and axes.data,
        sequence_parallel=layout.sequence_parallel and axes.tensor > 1,
        shard_group_size=shard_group(axes, topology, layout),
        deepspeed=_own_keys(layout.deepspeed),
    )


def _own_keys(block: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A team's DeepSpeed block without what it repeats of the recipe, which is folded there."""
    own = {name: value for name, value in block.items() if above + name not in RECIPE_KEYS}
    below = {name: _own_keys(value, f"{above}{name}.") for name, value in own.items() if isinstance(value, dict)}
    return {name: value for name, value in (own | below).items() if value != {}}


def _fold_model(model: Model, layout: Parallelism, axes: Axes) -> Model:
    """Few and narrow heads, grouped if they were; experts in the same proportion, wide feed-forward blocks wide."""
    heads, groups = _fold_heads(model, axes)
    is_apart = model.head_dim is not None and model.head_dim * model.num_attention_heads != model.hidden_size
    hidden = heads * HEAD_WIDTH
    chosen = min(2, model.num_experts_per_tok) if model.num_local_experts else model.num_experts_per_tok
    return replace(
        model,
        hidden_size=hidden,
        num_hidden_layers=max(2, axes.pipeline * (layout.virtual_pipeline_parallel_size or 1)),
        num_attention_heads=heads,
        num_key_value_heads=model.num_key_value_heads and groups,
        head_dim=model.head_dim and (2 * HEAD_WIDTH if is_apart else HEAD_WIDTH),
        intermediate_size=_in_proportion(model.intermediate_size, model.hidden_size, hidden),
        vocab_size=VOCABULARY,
        max_position_embeddings=SEQUENCE,
        num_local_experts=_fold_experts(model, chosen),
        num_experts_per_tok=chosen,
        moe_intermediate_size=_in_proportion(model.moe_intermediate_size, model.hidden_size, hidden),
        init_from=None,
        init_optimizer=False,
    )


def _fold_heads(model: Model, axes: Axes) -> tuple[int, int]:
    """Query heads and key/value heads: whole ones for every tensor rank and, under Ulysses, every context rank."""
    heads, groups = model.num_attention_heads, model.num_key_value_heads or model.num_attention_heads
    share = axes.tensor * axes.context
    if groups == 1:
        return (1 if heads == 1 else 2 * share), 1
    few = max(2, share)
    return (few if groups == heads else 2 * few), few


def _fold_experts(model: Model, chosen: int) -> int:
    """As many experts for each that a token is routed to, an even number if it was one."""
    experts = model.num_local_experts
    few = max(chosen, experts * chosen // model.num_experts_per_tok)
    return min(experts, few + few % 2 if experts % 2 == 0 else few)


def _in_proportion(width: int | None, hidden: int, small: int) -> int | None:
    """A width beside ``small`` as ``width`` is beside ``hidden``, in steps of one head."""
    return width and max(1, round(width / hidden * small / HEAD_WIDTH)) * HEAD_WIDTH


def _fold_training(training: Training, batch: Batch, axes: Axes) -> Training:
    micro, accumulation = min(2, training.micro_batch_size), _fold_accumulation(batch, axes)
    schedule, optimizer = training.schedule, training.optimizer
    return replace(
        training,
        seq_length=SEQUENCE,
        micro_batch_size=micro,
        global_batch_size=micro * axes.data * accumulation,
        gradient_accumulation_steps=training.gradient_accumulation_steps and accumulation,
        train_steps=STEPS,
        train_tokens=None,
        precision="bf16" if training.precision in ("fp16", "fp8") else training.precision,
        attention="sdpa" if training.attention == "flash" else training.attention,
        compile=False,
        profile=None,
        evaluation_interval_steps=0,
        evaluation_batches=min(1, training.evaluation_batches),
        optimizer=replace(optimizer, learning_rate=max(LEARNING_RATE, optimizer.learning_rate)),
        schedule=replace(
            schedule,
            warmup_steps=min(2, schedule.warmup_steps),
            decay_steps=schedule.decay_steps and max(1, min(STEPS, STEPS * schedule.decay_steps // batch.train_steps)),
        ),
    )


def _fold_accumulation(batch: Batch, axes: Axes) -> int:
    """Two portions a step where there were more than one; two for each stage, so that a pipeline reaches its rhythm."""
    return 1 if batch.gradient_accumulation_steps == 1 else 2 * axes.pipeline


def _fold_data(data: Data) -> Data:
    return replace(
        data,
        train=("demo",),
        train_weights=(),
        validation=(),
        validation_fraction=max(0.05, data.validation_fraction),
        tokenizer="bytes",
        format="text",
        num_workers=min(1, data.num_workers),
        inputs={},
    )


def _fold_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, directory=None, interval_steps=CHECKPOINT_STEPS, resume="auto")
