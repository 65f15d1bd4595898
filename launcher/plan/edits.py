"""Edits that lower memory, and layouts so plain that some of them is accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from launcher.catalog import accelerators, vm_sizes
from launcher.plan.batch import nearest_multiples
from launcher.plan.families.decoder import shape_of
from launcher.plan.families.moe import parameters
from launcher.plan.replacements import ROOMIEST, SOME_GPU, SUCCESSORS, WHOLE_GPU, with_infiniband
from launcher.plan.rules.case import divisors
from launcher.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.catalog.vm_size import VmSize
    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe

STATE_BYTES = 16
"""Of each parameter: fp32 weights, gradients and both moments."""
_GROWTH = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_ATTENTION = "training.attention"
_MICRO, _RECOMPUTE = "training.micro_batch_size", "training.activation_checkpointing"
_ENGINE, _ZERO, _TENSOR = "parallelism.engine", "parallelism.zero_stage", "parallelism.tensor_parallel_size"


def memory_edits(recipe: Recipe, plan: Plan | None) -> Iterator[tuple[str, ...]]:
    """Ways to hold less on a GPU: fused attention, smaller batches, recompute, sharding, more or bigger VMs, host."""
    if recipe.training.attention == "eager":
        yield (f"{_ATTENTION}=sdpa",)
    yield from _fewer_sequences(recipe)
    if recipe.training.activation_checkpointing != "full":
        yield (f"{_RECOMPUTE}=full",)
    yield from _more_sharding(recipe)
    layout = recipe.parallelism
    if layout.tensor_parallel_size > 1 and not layout.sequence_parallel:
        yield ("parallelism.sequence_parallel=true",)
    yield from _more_vms(recipe)
    yield from _bigger_vms(recipe)
    if layout.engine != "ddp" and layout.offload_optimizer == "none":
        stage = max(2, layout.zero_stage)
        yield ("parallelism.offload_optimizer=cpu", f"{_ZERO}={stage}")


def plain_edits(recipe: Recipe) -> Iterator[tuple[str, ...]]:
    """FSDP alone, everything sharded and recomputed, one sequence at a time; on more and bigger VMs until it fits."""
    for size in [_present(recipe), *_roomier(recipe)[:2], ROOMIEST]:
        for growth in _growths(recipe, size):
            yield _changed(recipe, _plain(recipe, size, growth))


def _present(recipe: Recipe) -> str:
    """The VM size asked for, or what it can be replaced by where no training runs on it."""
    size, nodes = vm_sizes.find(recipe.cluster.instance_type), recipe.cluster.instance_count
    if size.status == "retired":
        return SUCCESSORS[size.gpus]
    if size.gpu_fraction < 1:
        return WHOLE_GPU
    return with_infiniband(size.name) if nodes > 1 and not size.has_infiniband else size.name


def _growths(recipe: Recipe, name: str) -> list[int]:
    """Twice the VMs, and so on, from where the model's state takes no more than half of each GPU."""
    size, cluster = vm_sizes.find(name), recipe.cluster
    room = _room(size.accelerator or cluster.accelerator or _named(size)) * GIB
    if not room:
        return [1]
    state = STATE_BYTES * parameters(shape_of(recipe.model))
    enough = state / (0.5 * room * max(1, size.gpus) * cluster.instance_count)
    return [growth for growth in _GROWTH if 2 * growth > enough][:3]


def _plain(recipe: Recipe, name: str, growth: int) -> dict[str, Any]:
    cluster, training, model = recipe.cluster, recipe.training, recipe.model
    size, count = vm_sizes.find(name), cluster.instance_count * growth
    asked = cluster.processes_per_instance
    world = count * (max(1, size.gpus) if size.gpus or asked is None else asked)
    batch, is_new = training.global_batch_size, name != cluster.instance_type
    return {
        "cluster.backend": "local" if size.is_local else cluster.backend,
        "cluster.compute": None if size.is_local and cluster.backend == "azureml" else cluster.compute,
        "cluster.instance_type": name,
        "cluster.instance_count": count,
        "cluster.processes_per_instance": None if size.gpus else asked,
        "cluster.accelerator": None if is_new else cluster.accelerator or _named(size),
        "cluster.device_memory_gib": None if is_new else cluster.device_memory_gib,
        _ENGINE: "fsdp",
        _ZERO: 3,
        _TENSOR: 1,
        "parallelism.pipeline_parallel_size": 1,
        "parallelism.virtual_pipeline_parallel_size": None,
        "parallelism.pipeline_schedule": None,
        "parallelism.context_parallel_size": 1,
        "parallelism.expert_parallel_size": 1,
        "parallelism.sequence_parallel": False,
        "parallelism.data_parallel_size": None,
        "parallelism.shard_group_size": None,
        "parallelism.offload_optimizer": "none",
        "parallelism.offload_parameters": "none",
        _MICRO: 1,
        _RECOMPUTE: "full",
        _ATTENTION: "sdpa" if training.attention == "eager" else training.attention,
        "training.gradient_accumulation_steps": None,
        "training.seq_length": min(training.seq_length, model.max_position_embeddings),
        "training.global_batch_size": batch if batch % world == 0 else nearest_multiples(batch, world)[-1],
        "checkpoint.interval_steps": recipe.checkpoint.interval_steps or 100,
        "checkpoint.directory": None if cluster.backend == "azureml" else recipe.checkpoint.directory,
        "limits.budget_dollars": None,
    }


def _named(size: VmSize) -> str | None:
    """A GPU for ``local_gpu`` where nobody said which."""
    return SOME_GPU if size.is_local and size.gpus else None


def _changed(recipe: Recipe, wanted: dict[str, Any]) -> tuple[str, ...]:
    """Only what differs from the recipe, as overrides."""
    return tuple(f"{key}={_text(value)}" for key, value in wanted.items() if _value(recipe, key) != value)


def _value(recipe: Recipe, key: str) -> Any:
    found: Any = recipe
    for name in key.split("."):
        found = getattr(found, name)
    return found


def _text(value: Any) -> str:
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def _fewer_sequences(recipe: Recipe) -> Iterator[tuple[str, ...]]:
    """Micro batches that divide the present one: accumulation grows instead."""
    smaller = [size for size in divisors(recipe.training.micro_batch_size) if size < recipe.training.micro_batch_size]
    asked = recipe.training.gradient_accumulation_steps
    free = () if asked is None else ("training.gradient_accumulation_steps=null",)
    for size in sorted({*smaller[-1:], *smaller[:1]}, reverse=True):
        yield (f"{_MICRO}={size}", *free)


def _more_sharding(recipe: Recipe) -> Iterator[tuple[str, ...]]:
    layout = recipe.parallelism
    alone = layout.pipeline_parallel_size == 1 and layout.tensor_parallel_size == 1
    if layout.engine == "ddp":
        yield (f"{_ENGINE}=fsdp", f"{_ZERO}=3")
    elif layout.zero_stage < 3 and (layout.engine == "fsdp" or alone):
        yield (f"{_ZERO}=3",)
        yield (f"{_ZERO}=3", f"{_RECOMPUTE}=full")
    elif layout.zero_stage < 1:
        yield (f"{_ZERO}=1",)
    if layout.engine == "ddp" or layout.zero_stage < 3:
        engine = (f"{_ENGINE}=fsdp",) if layout.engine != "fsdp" else ()
        yield (*engine, f"{_ZERO}=3", f"{_RECOMPUTE}=full", f"{_MICRO}=1")


def _more_vms(recipe: Recipe) -> Iterator[tuple[str, ...]]:
    """Twice and four times the VMs, sharding over all of them."""
    layout, count = recipe.parallelism, recipe.cluster.instance_count
    engine = (f"{_ENGINE}=fsdp",) if layout.engine == "ddp" else ()
    for growth in (2, 4):
        shard = () if layout.zero_stage == 3 else (f"{_ZERO}=3",)
        if layout.engine == "deepspeed" and (layout.pipeline_parallel_size > 1 or layout.tensor_parallel_size > 1):
            shard = ()
        yield (f"cluster.instance_count={growth * count}", *engine, *shard)


def _bigger_vms(recipe: Recipe) -> Iterator[tuple[str, ...]]:
    for size in _roomier(recipe):
        yield (f"cluster.instance_type={size}",)


def _roomier(recipe: Recipe) -> list[str]:
    """Current sizes with as many GPUs and more memory each, the next larger first; none off Azure."""
    here = vm_sizes.find(recipe.cluster.instance_type)
    if here.is_local or here.gpus == 0:
        return []
    room = _room(here.accelerator) * here.gpu_fraction
    better = [
        size
        for size in vm_sizes.VM_SIZES
        if size.gpus >= here.gpus
        and size.status == "current"
        and size.gpu_fraction == 1
        and _room(size.accelerator) > room
        and (size.has_infiniband or size.gpus == 1 == here.gpus)
    ]
    return [size.name for size in sorted(better, key=lambda size: (size.gpus != here.gpus, _room(size.accelerator)))][
        :3
    ]


def _room(name: str | None) -> float:
    return (accelerators.find(name).usable_gib or 0.0) if name else 0.0
