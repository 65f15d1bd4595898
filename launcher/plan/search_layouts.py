"""Every layout of a recipe on so many ranks: cuts of the model and batch, and how each shards its state.

The rules of ``launcher.plan.rules`` as loops: what they refuse is never made. Offloading is left to DeepSpeed, and to
the host's memory: NVMe is nowhere faster.
"""

from __future__ import annotations

from functools import cache
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

from launcher.plan.rules import case as rules_case
from launcher.plan.rules.layout import tensor_choices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.rules.case import Case
    from launcher.recipe.schema import ActivationCheckpointing, Engine, Recipe

divisors = cache(rules_case.divisors)
RECOMPUTES: tuple[ActivationCheckpointing, ...] = ("none", "selective", "full")
"""Least work first."""
SLICE_TOKENS = 128
"""Shortest slice of a sequence a context rank is given: less fills no tile of a matrix unit."""
PASS_TOKENS = 1 << 17
"""Most tokens of one forward pass on one rank, unless one sequence is longer."""


class Cut(NamedTuple):
    """One way to cut model and batch over the ranks; ``world = tensor x pipeline x context x data``."""

    engine: Engine
    tensor: int
    pipeline: int
    virtual: int
    context: int
    expert: int
    data: int
    micro_batch: int
    micro_batches: int
    recompute: ActivationCheckpointing

    @property
    def replicas(self) -> int:
        """Ranks that hold the same parameters."""
        return self.data * self.context


class Sharding(NamedTuple):
    """What of the state the ranks with the same parameters share."""

    zero_stage: int = 0
    group: int | None = None
    """Ranks of a shard group; all when None."""
    offloads_optimizer: bool = False
    offloads_parameters: bool = False


class Family(NamedTuple):
    """Cuts that differ in virtual stages and recompute alone."""

    fastest: Cut
    """With most virtual stages and no recompute: no other member takes less time, exchanges apart."""
    virtuals: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many cuts."""
        return len(self.virtuals) * len(RECOMPUTES)

    def members(self) -> Iterator[Cut]:
        """Each of them."""
        for virtual in self.virtuals:
            for recompute in RECOMPUTES:
                yield self.fastest._replace(virtual=virtual, recompute=recompute)


def families(case: Case) -> Iterator[Family]:
    """Every cut of the case's recipe over its world, whatever layout the recipe itself asks for."""
    for tensor in _tensors(case):
        for pipeline in divisors(case.recipe.model.num_hidden_layers, most=case.world // tensor):
            if case.world % (tensor * pipeline) == 0:
                for context in _contexts(case.recipe, case.world // (tensor * pipeline)):
                    yield from _batched(case, tensor, pipeline, context)


def shardings(cut: Cut, case: Case) -> Iterator[Sharding]:
    """Every sharding of a cut."""
    yield Sharding()
    if cut.engine == "ddp" or (cut.replicas == 1 and cut.engine == "fsdp"):
        return
    most = 3
    if cut.engine == "deepspeed":
        most = 1 if cut.pipeline > 1 else 2 if cut.tensor > 1 else 3
    for stage in range(1, most + 1):
        yield Sharding(stage)
        if cut.engine == "fsdp" or stage == 3:
            yield from (Sharding(stage, group) for group in _groups(cut, case))
        if cut.engine == "deepspeed":
            yield Sharding(stage, None, True)
            if stage == 3:
                yield Sharding(stage, None, True, True)


def simplicity(cut: Cut, sharding: Sharding) -> tuple[object, ...]:
    """Orders layouts that are as fast: less recompute, less offload, fewer axes, less sharding, larger passes."""
    return (
        RECOMPUTES.index(cut.recompute),
        sharding.offloads_parameters,
        sharding.offloads_optimizer,
        cut.context,
        cut.virtual,
        cut.pipeline,
        cut.tensor,
        cut.expert,
        sharding.zero_stage,
        sharding.group or 0,
        -cut.micro_batch,
        cut.engine,
    )


def overrides(recipe: Recipe, instances: int, cut: Cut, sharding: Sharding) -> tuple[str, ...]:
    """What turns ``recipe`` into this layout on ``instances`` VMs: only keys that differ, mapping keys all."""
    asked = {f"parallelism.{name}": value for name, value in _parallelism(recipe, cut, sharding).items()} | {
        "training.micro_batch_size": cut.micro_batch,
        "training.gradient_accumulation_steps": None,
        "training.activation_checkpointing": cut.recompute,
        "cluster.instance_count": instances,
    }
    sections = {"parallelism": recipe.parallelism, "training": recipe.training, "cluster": recipe.cluster}
    changed = {
        path: value
        for path, value in asked.items()
        if getattr(sections[path.partition(".")[0]], path.partition(".")[2]) != value
    }
    return tuple(f"{path}={_word(value)}" for path, value in sorted(changed.items()))


def words(cut: Cut, sharding: Sharding) -> str:
    """The layout on one line, in the field's abbreviations; axes of one rank are left out."""
    parts: list[str] = [cut.engine] if cut.engine == "ddp" else [cut.engine, f"zero{sharding.zero_stage}"]
    parts += [f"shard{sharding.group}"] if sharding.group else []
    axes = {"tp": cut.tensor, "pp": cut.pipeline, "vp": cut.virtual, "cp": cut.context, "ep": cut.expert}
    parts += [f"{axis}{size}" for axis, size in axes.items() if size > 1]
    parts += [f"dp{cut.data}", f"micro{cut.micro_batch}"]
    parts += [] if cut.recompute == "none" else [cut.recompute]
    parts += ["offload" if sharding.offloads_parameters else "offload-optimizer"] if sharding.offloads_optimizer else []
    return " ".join(parts)


def schedule(recipe: Recipe, cut: Cut) -> str | None:
    """The asked schedule where it has a zero bubble and the engine can run it; else what follows from the stages."""
    asked = recipe.parallelism.pipeline_schedule
    return asked if asked == "zero_bubble" and cut.engine == "fsdp" and cut.pipeline > 1 else None


def _parallelism(recipe: Recipe, cut: Cut, sharding: Sharding) -> dict[str, object]:
    return {
        "engine": cut.engine,
        "tensor_parallel_size": cut.tensor,
        "pipeline_parallel_size": cut.pipeline,
        "virtual_pipeline_parallel_size": cut.virtual if cut.virtual > 1 else None,
        "pipeline_schedule": schedule(recipe, cut),
        "context_parallel_size": cut.context,
        "expert_parallel_size": cut.expert,
        "data_parallel_size": None,
        "sequence_parallel": cut.tensor > 1,
        "zero_stage": sharding.zero_stage,
        "shard_group_size": sharding.group,
        "offload_optimizer": "cpu" if sharding.offloads_optimizer else "none",
        "offload_parameters": "cpu" if sharding.offloads_parameters else "none",
    }


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def _tensors(case: Case) -> Iterator[int]:
    """Tensor sizes that the heads, the island and the world allow."""
    for tensor in tensor_choices(case):
        if case.world <= case.island or case.island % tensor == 0:
            yield tensor


def _contexts(recipe: Recipe, ranks: int) -> tuple[int, ...]:
    seq = recipe.training.seq_length
    return divisors(gcd(seq, ranks), most=max(1, seq // SLICE_TOKENS))


def _batched(case: Case, tensor: int, pipeline: int, context: int) -> Iterator[Family]:
    """The cuts of three fixed axes: every expert size, micro batch, engine, virtual size and recompute."""
    training = case.recipe.training
    data = case.world // (tensor * pipeline * context)
    per_rank, rest = divmod(training.global_batch_size, data)
    if rest:
        return
    most = max(1, PASS_TOKENS * context // training.seq_length)
    for micro_batch in divisors(per_rank, most=most):
        count = per_rank // micro_batch
        virtuals = _virtuals(case.recipe, pipeline, count)
        for expert in _experts(case.recipe, data):
            for engine in _engines(case.recipe, tensor, pipeline, context, expert):
                stages = (1,) if engine == "deepspeed" else virtuals
                cut = Cut(
                    engine, tensor, pipeline, stages[-1], context, expert, data, micro_batch, count, RECOMPUTES[0]
                )
                yield Family(cut, stages)


def _virtuals(recipe: Recipe, pipeline: int, micro_batches: int) -> tuple[int, ...]:
    """Interleaving takes micro batches in multiples of the pipeline."""
    if pipeline == 1 or micro_batches % pipeline:
        return (1,)
    return divisors(recipe.model.num_hidden_layers // pipeline)


def _experts(recipe: Recipe, data: int) -> tuple[int, ...]:
    experts = recipe.model.num_local_experts
    return divisors(gcd(experts, data)) if experts else (1,)


def _engines(recipe: Recipe, tensor: int, pipeline: int, context: int, expert: int) -> Iterator[Engine]:
    if tensor == pipeline == context == expert == 1:
        yield "ddp"
    if context == 1 or recipe.training.seq_length % (2 * context) == 0:
        yield "fsdp"
    heads = recipe.model.num_attention_heads // tensor
    if expert == 1 and heads % context == 0 and (context == 1 or pipeline == 1):
        yield "deepspeed"


def _groups(cut: Cut, case: Case) -> tuple[int, ...]:
    """Groups that fill one NVLink island, one node, or eight nodes, and are fewer than all."""
    spans = {case.processes, case.size.island_gpus, 8 * case.processes}
    found = {span // cut.tensor for span in spans}
    return tuple(sorted(n for n in found if 1 < n < cut.replicas and cut.replicas % n == 0))
