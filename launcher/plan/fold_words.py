"""What a folded recipe kept, what it folded, and what it cannot show, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from launcher.catalog import vm_sizes
from launcher.recipe import codec
from launcher.recipe.diff import changes
from launcher.recipe.fields import as_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe

_WORTH_NAMING = (
    "model.model_type",
    "model.tie_word_embeddings",
    "model.dropout",
    "model.num_local_experts",
    "model.num_experts_per_tok",
    "training.precision",
    "training.micro_batch_size",
    "training.activation_checkpointing",
    "training.gradient_clipping",
    "training.schedule.name",
    "training.lora.rank",
    "parallelism.engine",
    "parallelism.zero_stage",
    "parallelism.tensor_parallel_size",
    "parallelism.sequence_parallel",
    "parallelism.pipeline_parallel_size",
    "parallelism.virtual_pipeline_parallel_size",
    "parallelism.pipeline_schedule",
    "parallelism.context_parallel_size",
    "parallelism.expert_parallel_size",
    "parallelism.shard_group_size",
    "parallelism.offload_optimizer",
    "parallelism.offload_parameters",
    "parallelism.deepspeed",
    "data.packing",
    "data.reset_at_documents",
)
"""Keys that a reader looks for; named when they are as they were, and do something."""
_IDLE: tuple[Any, ...] = (None, False, 0, 1, "none", {})
_SPOKEN_SECTIONS = ("model.", "training.", "parallelism.", "data.")
_UNSPOKEN = (
    "parallelism.data_parallel_size",
    "training.gradient_accumulation_steps",
    "training.train_steps",
    "training.train_tokens",
)
"""Derived values are told from the plans, whether they were given or not."""


def kept_words(before: Recipe, after: Recipe) -> tuple[str, ...]:
    """``parallelism.zero_stage 2``: keys that are as they were."""
    changed = {change.key for change in changes(before, after)}
    encoded = codec.encode(after)
    values = {key: _value(encoded, key) for key in _WORTH_NAMING}
    experts = () if after.model.num_local_experts else ("model.num_experts_per_tok", "model.num_local_experts")
    return tuple(
        f"{key} {as_text(value)}"
        for key, value in values.items()
        if not any(name == key or name.startswith(f"{key}.") for name in changed)
        and key not in experts
        and not any(value is idle or value == idle for idle in _IDLE)
    )


def folded_words(before: Recipe, after: Recipe, planned: Plan, folded: Plan) -> tuple[str, ...]:
    """``model.hidden_size 12288 -> 64``: keys that were made smaller, and what follows from them."""
    return (*_derived(planned, folded), *_changed(before, after))


def not_shown_words(recipe: Recipe) -> Iterator[str]:
    """What CPU processes and the shipped text cannot show of ``recipe``, whatever its layout."""
    yield from _device(recipe)
    yield from _content(recipe)


def _device(recipe: Recipe) -> Iterator[str]:
    training = recipe.training
    if vm_sizes.find(recipe.cluster.instance_type).gpus:
        yield "GPUs: memory, speed, kernels, NCCL and the network between nodes (ranks are CPU processes over gloo)"
    if training.precision in ("fp16", "fp8"):
        yield f"training.precision {training.precision}: a CPU computes bf16 instead"
    if training.attention == "flash":
        yield "training.attention flash: a CPU has sdpa instead"
    if training.compile:
        yield "training.compile: compiling would take longer than all the rest"


def _content(recipe: Recipe) -> Iterator[str]:
    if recipe.model.init_from:
        yield f"model.init_from {recipe.model.init_from}: a folded model begins with weights of its own"
    if recipe.data.train != ("demo",) or recipe.data.tokenizer != "bytes":
        yield "your corpora and tokenizer: the shipped text is read, a token a byte"
    if recipe.data.format != "text":
        yield f"data.format {recipe.data.format}"
    if recipe.tracking.enabled:
        yield "tracking: metrics stay in the run's own folder"


def _derived(planned: Plan, folded: Plan) -> Iterator[str]:
    pairs = {
        "ranks": (planned.topology.world_size, folded.topology.world_size),
        "data-parallel size": (planned.topology.data_parallel_size, folded.topology.data_parallel_size),
        "gradient accumulation": (
            planned.batch.gradient_accumulation_steps,
            folded.batch.gradient_accumulation_steps,
        ),
        "steps": (planned.batch.train_steps, folded.batch.train_steps),
        "parameters": (planned.parameters, folded.parameters),
    }
    for name, (before, after) in pairs.items():
        if before != after:
            yield f"{name} {before} -> {after}"


def _changed(before: Recipe, after: Recipe) -> Iterator[str]:
    for change in changes(before, after):
        if change.key.startswith(_SPOKEN_SECTIONS) and change.key not in _UNSPOKEN:
            yield f"{change.key} {_text(change.left)} -> {_text(change.right)}"


def _text(value: Any) -> str:
    return "null" if value is None else str(as_text(value))


def _value(encoded: dict[str, Any], key: str) -> Any:
    value: Any = encoded
    for name in key.split("."):
        value = value[name]
    return value
