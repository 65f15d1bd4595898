"""Rules of the axes: what tensor, pipeline, context, expert and data sizes must divide."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from launcher.plan.rules.case import divisors, finding, nearest_first, spoken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Finding
    from launcher.plan.rules.case import Case

_TENSOR = "parallelism.tensor_parallel_size"
_PIPELINE = "parallelism.pipeline_parallel_size"
_VIRTUAL = "parallelism.virtual_pipeline_parallel_size"
_CONTEXT = "parallelism.context_parallel_size"
_EXPERT = "parallelism.expert_parallel_size"


def tensor_heads(case: Case) -> Iterator[Finding]:
    """Each tensor rank holds whole query heads and whole key/value heads."""
    model, tensor = case.recipe.model, case.recipe.parallelism.tensor_parallel_size
    heads, kv_heads = model.num_attention_heads, model.num_key_value_heads or model.num_attention_heads
    if heads % tensor == 0 and kv_heads % tensor == 0:
        return
    guilty, name = (heads, "attention heads") if heads % tensor else (kv_heads, "key/value heads")
    key = "model.num_attention_heads" if heads % tensor else "model.num_key_value_heads"
    choices = tensor_choices(case)
    yield finding(
        "error",
        "tensor_heads",
        f"{tensor}-way tensor parallelism does not divide {guilty} {name}",
        _TENSOR,
        key,
        allowed=f"{spoken(choices)} (divide the heads and the {case.island} GPUs NVLink joins)",
        edits=((f"{_TENSOR}={choice}",) for choice in nearest_first(choices, tensor)[:3]),
    )


def tensor_choices(case: Case) -> tuple[int, ...]:
    """Tensor sizes that divide the heads, the key/value heads, the island and the world."""
    model = case.recipe.model
    kv_heads = model.num_key_value_heads or model.num_attention_heads
    return divisors(math.gcd(model.num_attention_heads, kv_heads, case.world), most=case.island)


def tensor_island(case: Case) -> Iterator[Finding]:
    """Tensor ranks talk twice a layer and direction: they must sit where NVLink reaches."""
    tensor = case.recipe.parallelism.tensor_parallel_size
    straddles = case.world > case.island and case.island % tensor != 0
    if tensor <= case.island and not straddles:
        return
    choices = tensor_choices(case)
    yield finding(
        "error",
        "tensor_island",
        f"{tensor}-way tensor parallelism leaves the {case.island} GPUs that fast links join on {case.size.name}",
        _TENSOR,
        "cluster.instance_type",
        allowed=spoken(choices),
        edits=((f"{_TENSOR}={choice}",) for choice in nearest_first(choices, tensor)[:3]),
    )


def tensor_pcie(case: Case) -> Iterator[Finding]:
    """Tensor parallelism over PCIe works, slowly."""
    tensor = case.recipe.parallelism.tensor_parallel_size
    if case.is_cpu or case.size.is_local or not case.size.island_gpus < tensor <= case.processes:
        return
    yield finding(
        "warning",
        "tensor_pcie",
        f"{tensor}-way tensor parallelism crosses PCIe: NVLink joins only {case.size.island_gpus} of the "
        f"{case.size.gpus} GPUs of {case.size.name}",
        _TENSOR,
        "cluster.instance_type",
        edits=((f"{_TENSOR}={case.size.island_gpus}",),),
    )


def pipeline_layers(case: Case) -> Iterator[Finding]:
    """Every stage, virtual ones too, holds as many layers."""
    layout, layers = case.recipe.parallelism, case.recipe.model.num_hidden_layers
    pipeline, virtual = layout.pipeline_parallel_size, layout.virtual_pipeline_parallel_size or 1
    if layers % (pipeline * virtual) == 0:
        return
    yield finding(
        "error",
        "pipeline_layers",
        f"{pipeline} pipeline ranks x {virtual} virtual stages do not divide {layers} layers",
        _PIPELINE,
        _VIRTUAL,
        "model.num_hidden_layers",
        allowed=f"a product that divides {layers}: {spoken(divisors(layers))}",
        edits=_stage_edits(layers, pipeline, virtual),
    )


def _stage_edits(layers: int, pipeline: int, virtual: int) -> list[tuple[str, ...]]:
    """Other virtual stages where the pipeline itself divides the layers, else other pipeline sizes."""
    if layers % pipeline == 0:
        return [(f"{_VIRTUAL}={n}",) for n in nearest_first(divisors(layers // pipeline), virtual)[:3]]
    whole = ("parallelism.virtual_pipeline_parallel_size=null",) if virtual > 1 else ()
    return [(f"{_PIPELINE}={n}", *whole) for n in nearest_first(divisors(layers), pipeline)[:3]]


def virtual_stages(case: Case) -> Iterator[Finding]:
    """Virtual stages belong to the interleaved schedule of a real pipeline."""
    layout = case.recipe.parallelism
    virtual, schedule = layout.virtual_pipeline_parallel_size or 1, layout.pipeline_schedule
    if virtual > 1 and layout.pipeline_parallel_size == 1:
        message = f"{virtual} virtual stages need a pipeline; pipeline_parallel_size is 1"
        yield finding("error", "virtual_pipeline", message, _VIRTUAL, _PIPELINE, edits=((f"{_VIRTUAL}=null",),))
    elif virtual > 1 and schedule not in (None, "interleaved", "zero_bubble"):
        edits = (("parallelism.pipeline_schedule=interleaved",), (f"{_VIRTUAL}=null",))
        message = f"the {schedule} schedule has no virtual stages; {virtual} were asked"
        yield finding("error", "virtual_schedule", message, "parallelism.pipeline_schedule", _VIRTUAL, edits=edits)
    elif virtual == 1 and schedule == "interleaved" and layout.pipeline_parallel_size > 1:
        edits = (("parallelism.pipeline_schedule=1f1b",), (f"{_VIRTUAL}=2",))
        message = "the interleaved schedule needs at least 2 virtual stages per rank"
        yield finding("error", "virtual_schedule", message, "parallelism.pipeline_schedule", _VIRTUAL, edits=edits)


def world_split(case: Case) -> Iterator[Finding]:
    """Tensor x pipeline x context divides the world."""
    layout, cluster = case.recipe.parallelism, case.recipe.cluster
    if case.world % case.model_ranks == 0:
        return
    rest = case.model_ranks // layout.pipeline_parallel_size
    pipelines = [n for n in divisors(case.recipe.model.num_hidden_layers) if case.world % (rest * n) == 0]
    nodes = case.model_ranks // math.gcd(case.model_ranks, case.processes)
    more = -(-cluster.instance_count // nodes) * nodes
    edits = [(f"cluster.instance_count={more}",)]
    edits += [(f"{_PIPELINE}={n}",) for n in nearest_first(pipelines, layout.pipeline_parallel_size)[:2]]
    yield finding(
        "error",
        "world_size",
        f"tensor {layout.tensor_parallel_size} x pipeline {layout.pipeline_parallel_size} x context "
        f"{layout.context_parallel_size} = {case.model_ranks} ranks do not divide the world of {case.world} "
        f"({cluster.instance_count} x {case.processes})",
        _TENSOR,
        _PIPELINE,
        _CONTEXT,
        "cluster.instance_count",
        allowed=f"a product that divides {case.world}",
        edits=edits,
    )


def data_asserted(case: Case) -> Iterator[Finding]:
    """A data-parallel size that was given must be the one that follows."""
    asked = case.recipe.parallelism.data_parallel_size
    if asked is None or case.world % case.model_ranks or asked == case.world // case.model_ranks:
        return
    data = case.world // case.model_ranks
    yield finding(
        "error",
        "data_parallel_size",
        f"data_parallel_size is {asked}, but {case.world} ranks / {case.model_ranks} (tensor x pipeline x context) "
        f"= {data}",
        "parallelism.data_parallel_size",
        "cluster.instance_count",
        allowed=str(data),
        edits=(("parallelism.data_parallel_size=null",), (f"parallelism.data_parallel_size={data}",)),
    )


def context_length(case: Case) -> Iterator[Finding]:
    """Ring attention gives each rank two slices of the sequence, an early and a late one; Ulysses splits heads."""
    layout, seq = case.recipe.parallelism, case.recipe.training.seq_length
    context = layout.context_parallel_size
    if context == 1:
        return
    is_ring = layout.engine != "deepspeed"
    slices = 2 * context if is_ring else context
    if seq % slices:
        choices = [n for n in (1, 2, 4, 8, 16, 32, 64) if seq % (2 * n if is_ring and n > 1 else n) == 0]
        yield finding(
            "error",
            "context_length",
            f"{seq} tokens do not split into {slices} slices for {context}-way context parallelism",
            _CONTEXT,
            "training.seq_length",
            allowed=spoken(choices),
            edits=((f"{_CONTEXT}={choice}",) for choice in nearest_first(choices, context)[:3]),
        )
    heads = case.recipe.model.num_attention_heads // layout.tensor_parallel_size
    if not is_ring and heads % context:
        yield finding(
            "error",
            "context_heads",
            f"{context}-way Ulysses context parallelism does not divide {heads} heads per tensor rank",
            _CONTEXT,
            "model.num_attention_heads",
            allowed=spoken(divisors(heads)),
            edits=((f"{_CONTEXT}={choice}",) for choice in nearest_first(divisors(heads), context)[:3]),
        )


def experts(case: Case) -> Iterator[Finding]:
    """Expert ranks share whole experts and are taken out of the data-parallel ranks."""
    model, expert = case.recipe.model, case.recipe.parallelism.expert_parallel_size
    data = case.world // case.model_ranks if case.world % case.model_ranks == 0 else 0
    if model.num_local_experts and model.num_experts_per_tok > model.num_local_experts:
        yield finding(
            "error",
            "experts_per_token",
            f"{model.num_experts_per_tok} experts per token, but there are {model.num_local_experts}",
            "model.num_experts_per_tok",
            "model.num_local_experts",
            edits=((f"model.num_experts_per_tok={model.num_local_experts}",),),
        )
    if expert == 1:
        return
    if not model.num_local_experts:
        message = f"{expert}-way expert parallelism, but the model has no experts"
        yield finding(
            "error", "expert_parallel", message, _EXPERT, "model.num_local_experts", edits=((f"{_EXPERT}=1",),)
        )
    elif model.num_local_experts % expert or data % expert:
        choices = divisors(math.gcd(model.num_local_experts, data))
        yield finding(
            "error",
            "expert_parallel",
            f"{expert}-way expert parallelism must divide {model.num_local_experts} experts and {data} "
            "data-parallel ranks",
            _EXPERT,
            "model.num_local_experts",
            "cluster.instance_count",
            allowed=spoken(choices),
            edits=((f"{_EXPERT}={choice}",) for choice in nearest_first(choices, expert)[:3]),
        )


def shard_group(case: Case) -> Iterator[Finding]:
    """A shard group divides the ranks that hold the same parameters."""
    layout = case.recipe.parallelism
    group = layout.shard_group_size
    if group is None or case.world % case.model_ranks:
        return
    replicas = case.world // case.model_ranks * layout.context_parallel_size
    if replicas % group:
        choices = divisors(replicas)
        yield finding(
            "error",
            "shard_group",
            f"shard groups of {group} do not divide {replicas} ranks that hold the same parameters",
            "parallelism.shard_group_size",
            allowed=spoken(choices),
            edits=((f"parallelism.shard_group_size={n}",) for n in nearest_first(choices, group)[:3]),
        )


def sequence_parallel_alone(case: Case) -> Iterator[Finding]:
    """Sequence parallelism shards over tensor ranks; with one there is nothing to shard."""
    layout = case.recipe.parallelism
    if layout.sequence_parallel and layout.tensor_parallel_size == 1:
        yield finding(
            "note",
            "sequence_parallel",
            "sequence_parallel does nothing at tensor_parallel_size 1",
            "parallelism.sequence_parallel",
            _TENSOR,
        )


def vocabulary(case: Case) -> Iterator[Finding]:
    """A vocabulary that tensor ranks cannot share evenly leaves some with a longer product."""
    vocab, tensor = case.recipe.model.vocab_size, case.recipe.parallelism.tensor_parallel_size
    if vocab % tensor == 0:
        return
    unit = 128 * tensor
    padded = -(-vocab // unit) * unit
    yield finding(
        "note",
        "vocabulary",
        f"{vocab} tokens do not divide over {tensor} tensor ranks: the last one holds fewer rows; "
        f"{padded} would also align the matrix product",
        "model.vocab_size",
        _TENSOR,
        edits=((f"model.vocab_size={padded}",),),
    )
