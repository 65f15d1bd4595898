"""The DeepSpeed configuration of a recipe: generated whole, with a team's own keys checked and merged over it.

DeepSpeed resolves what is missing by its own defaults, some of which change what is learnt (it clips gradients
at 1.0 unless told otherwise). So every such default is written out, and nothing is left ``auto``: that word is
resolved by the Hugging Face Trainer, which does not run here. Checked against DeepSpeed 0.19.8
(``deepspeed/runtime/config.py``, ``zero/config.py``, ``precision_config.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from launcher.plan.deepspeed_keys import INT, kind_of, nearest_key
from launcher.plan.plan import Batch, Edit, Finding, Topology

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from launcher.recipe.schema import Recipe

PREFIX = "parallelism.deepspeed"
GATHER_KEY = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
NVME_PATH = "/mnt/deepspeed_nvme"
"""Azure mounts the local disks of its ND sizes under /mnt; another place is named in ``parallelism.deepspeed``."""
TRIPLE = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")

RECIPE_KEYS = {
    "train_batch_size": "training.global_batch_size",
    "train_micro_batch_size_per_gpu": "training.micro_batch_size",
    "gradient_accumulation_steps": "training.gradient_accumulation_steps",
    "gradient_clipping": "training.gradient_clipping",
    "bf16.enabled": "training.precision",
    "fp16.enabled": "training.precision",
    "zero_optimization.stage": "parallelism.zero_stage",
    "zero_optimization.offload_optimizer.device": "parallelism.offload_optimizer",
    "zero_optimization.offload_param.device": "parallelism.offload_parameters",
    "zero_optimization.zero_hpz_partition_size": "parallelism.shard_group_size",
    "optimizer.type": "training.optimizer.name",
    "optimizer.params.lr": "training.optimizer.learning_rate",
    "optimizer.params.betas": "training.optimizer.beta1",
    "optimizer.params.eps": "training.optimizer.epsilon",
    "optimizer.params.weight_decay": "training.optimizer.weight_decay",
    "sequence_parallel_size": "parallelism.context_parallel_size",
    "tensor_parallel.autotp_size": "parallelism.tensor_parallel_size",
    "pipeline.pipe_partitioned": "parallelism.sequence_parallel",
    "pipeline.grad_partitioned": "parallelism.sequence_parallel",
}
"""DeepSpeed keys that have a recipe key of their own; a team's DeepSpeed block may repeat but not contradict it."""


def deepspeed_config(recipe: Recipe, topology: Topology, batch: Batch) -> dict[str, Any]:
    """What ``deepspeed.initialize`` is given: plain JSON values, every key decided.

    ``parallelism.deepspeed`` is merged over it, key by key; its ``auto`` values give way to ours.
    """
    return _merge(_generated(recipe, topology, batch), recipe.parallelism.deepspeed)


def deepspeed_findings(recipe: Recipe, topology: Topology, batch: Batch) -> tuple[Finding, ...]:
    """What is wrong with the recipe's DeepSpeed layout or with the block a team wrote, everything at once."""
    if recipe.parallelism.engine != "deepspeed":
        return ()
    generated = dict(_leaves(_generated(recipe, topology, batch)))
    written = dict(_leaves(recipe.parallelism.deepspeed))
    return (
        *_layout_findings(recipe, topology),
        *(found for path, value in written.items() for found in _value_findings(path, value, generated)),
        *_triple_findings(written, topology),
        *_weight_findings(recipe, written),
    )


def batch_triple(given: Mapping[str, int], data_parallel_size: int) -> tuple[int, int, int]:
    """Global batch, micro batch and accumulation as DeepSpeed completes them from what is given.

    Args:
        given: any of ``train_batch_size``, ``train_micro_batch_size_per_gpu``, ``gradient_accumulation_steps``.
        data_parallel_size: DeepSpeed's "world size": ranks that see different sequences.

    Raises:
        ValueError: neither of the first two is given, or the three do not multiply out.
    """
    train, micro, accumulation = (given.get(name) for name in TRIPLE)
    if train is None and micro is None:
        raise ValueError("Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided")
    if train is None:
        assert micro is not None
        train = micro * (accumulation or 1) * data_parallel_size
    if micro is None:
        micro = train // data_parallel_size // (accumulation or 1)
    if accumulation is None:
        accumulation = train // micro // data_parallel_size if micro else 0
    if train != micro * accumulation * data_parallel_size:
        raise ValueError(triple_fault(train, micro, accumulation, data_parallel_size))
    return train, micro, accumulation


def triple_fault(train: int, micro: int, accumulation: int, data_parallel_size: int) -> str:
    """Why a batch triple does not multiply out, and the data-parallel size that would satisfy it."""
    per_rank = micro * accumulation
    fits = f"; {train // per_rank} data-parallel ranks would satisfy it" if per_rank and train % per_rank == 0 else ""
    return (
        f"train_batch_size is not micro batch x accumulation x data-parallel ranks: "
        f"{train} != {micro} * {accumulation} * {data_parallel_size}{fits}"
    )


def _generated(recipe: Recipe, topology: Topology, batch: Batch) -> dict[str, Any]:
    """The part that follows from the recipe's own keys."""
    training = recipe.training
    config: dict[str, Any] = {
        "train_batch_size": batch.global_batch_size,
        "train_micro_batch_size_per_gpu": batch.micro_batch_size,
        "gradient_accumulation_steps": batch.gradient_accumulation_steps,
        "gradient_clipping": training.gradient_clipping,
        "steps_per_print": 1_000_000_000,  # our loop prints; DeepSpeed's own line every 10 steps only repeats it
        "wall_clock_breakdown": False,
        "zero_allow_untested_optimizer": False,
        "zero_force_ds_cpu_optimizer": False,  # torch's AdamW is allowed beside offloaded state
        "zero_optimization": _zero(recipe, topology),
        "optimizer": _optimizer(recipe),
    }
    if training.precision in ("bf16", "fp8"):  # our fp8 layers compute all else in bf16
        config["bf16"] = {"enabled": True}
    if training.precision == "fp16":
        config["fp16"] = {"enabled": True, "loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000}
        config["fp16"] |= {"hysteresis": 2, "min_loss_scale": 1}
    if topology.pipeline_parallel_size > 1:
        # Between stages DeepSpeed sends a slice of what it takes to be the same activations on all tensor ranks; under
        # sequence parallelism each has other tokens, and all of them must be sent.
        is_same = not recipe.parallelism.sequence_parallel
        config["pipeline"] = {"pipe_partitioned": is_same, "grad_partitioned": is_same}
    if topology.context_parallel_size > 1:
        config["sequence_parallel_size"] = topology.context_parallel_size
    return config


def _zero(recipe: Recipe, topology: Topology) -> dict[str, Any]:
    layout = recipe.parallelism
    zero: dict[str, Any] = {"stage": layout.zero_stage}
    if layout.zero_stage == 0:
        return zero
    zero |= {"contiguous_gradients": True, "reduce_scatter": True, "overlap_comm": layout.offload_optimizer == "none"}
    if layout.offload_optimizer != "none":
        zero["offload_optimizer"] = _offload(layout.offload_optimizer)
    if layout.zero_stage == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True  # else saved weights are size-0 placeholders
        if layout.offload_parameters != "none":
            zero["offload_param"] = _offload(layout.offload_parameters)
        if topology.shard_group_size < topology.data_parallel_size * topology.context_parallel_size:
            zero["zero_hpz_partition_size"] = topology.shard_group_size
    return zero


def _offload(device: str) -> dict[str, Any]:
    return {"device": device, "pin_memory": True} | ({"nvme_path": NVME_PATH} if device == "nvme" else {})


def _optimizer(recipe: Recipe) -> dict[str, Any]:
    numbers = recipe.training.optimizer
    # DeepSpeed's own Adam kernels are compiled on first use (45-60 s); offloaded state on a GPU node is worth it.
    plain = recipe.parallelism.offload_optimizer == "none" or recipe.cluster.backend == "local"
    params = {
        "lr": numbers.learning_rate,
        "betas": [numbers.beta1, numbers.beta2],
        "eps": numbers.epsilon,
        "weight_decay": numbers.weight_decay,
        "torch_adam": plain,
        "adam_w_mode": True,
    }
    return {"type": "AdamW", "params": params}


def _merge(ours: dict[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """``theirs`` over ``ours``, section by section; ``auto`` never wins."""
    merged = dict(ours)
    for name, value in theirs.items():
        if isinstance(value, dict):
            merged[name] = _merge(merged.get(name) or {}, value)
        elif value != "auto":
            merged[name] = value
    return merged


def _leaves(block: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in block.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _layout_findings(recipe: Recipe, topology: Topology) -> Iterator[Finding]:
    stage = recipe.parallelism.zero_stage
    if topology.pipeline_parallel_size > 1 and stage >= 2:
        yield Finding(
            level="error",
            code="deepspeed.pipeline_zero",
            message=f"ZeRO-{stage} is incompatible with {topology.pipeline_parallel_size}-way pipeline parallelism: "
            "gradients live through all micro batches of a pipeline step, so only optimizer state can be sharded",
            keys=("parallelism.zero_stage", "parallelism.pipeline_parallel_size"),
            allowed="zero_stage 0 or 1 (zero_stage <= 1)",
            edits=(
                Edit(overrides=("parallelism.zero_stage=1",)),
                Edit(overrides=("parallelism.pipeline_parallel_size=1",)),
            ),
        )
    if stage == 0 and recipe.training.precision == "fp16":
        # 0.19.8: scale_if_loss (runtime/base_optimizer.py) wants a loss_scaler, which FP16_UnfusedOptimizer has not;
        # its step divides all the same. Measured: the first of 20 steps lowers the loss by an eighth less.
        yield Finding(
            level="error",
            code="deepspeed.fp16_zero0",
            message="ZeRO-0 in fp16 learns something else: DeepSpeed divides gradients by a loss scale that it has not "
            "multiplied the loss by",
            keys=("training.precision", "parallelism.zero_stage"),
            allowed="zero_stage 1 to 3, or bf16",
            edits=(Edit(overrides=("parallelism.zero_stage=1",)), Edit(overrides=("training.precision=bf16",))),
        )


def _value_findings(path: str, value: object, generated: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with one value a team wrote: unknown key, wrong type, ``auto``, or a contradiction."""
    kind = kind_of(path)
    if kind is None:
        yield _fault("unknown_key", f"DeepSpeed knows no key {path}", path, allowed=nearest_key(path))
    elif value == "auto":
        if path not in generated:
            what = f"{path} is 'auto', which only the Hugging Face Trainer resolves"
            yield _fault("auto", what, path, allowed=f"{kind.words}, or leave the key out")
    elif not kind.accepts(value):
        what = f"{path} has the wrong type: {type(value).__name__} {value!r}, expected {kind.name}"
        yield _fault("type", what, path, allowed=kind.words)
    elif path in RECIPE_KEYS and _differs(value, generated.get(path)):
        ours = generated.get(path, "not set")
        what = f"{path} = {value!r} contradicts the recipe, from which it follows as {ours!r}"
        yield _fault("contradiction", what, path, allowed=repr(ours), recipe_key=RECIPE_KEYS[path])


def _differs(value: object, ours: object) -> bool:
    """Off, zero and ``none`` agree with a key that was not generated at all."""
    return value != ours and not (ours is None and value in (None, False, 0, 1, "none"))


def _triple_findings(written: Mapping[str, Any], topology: Topology) -> Iterator[Finding]:
    given = {name: written[name] for name in TRIPLE if name in written and INT.accepts(written[name])}
    if not given:
        return
    try:
        batch_triple(given, topology.data_parallel_size)
    except ValueError as error:
        yield _fault("batch_triple", str(error), *given)


def _weight_findings(recipe: Recipe, written: Mapping[str, Any]) -> Iterator[Finding]:
    if recipe.parallelism.zero_stage == 3 and written.get(GATHER_KEY) is False:
        what = f"{GATHER_KEY} = False makes ZeRO-3 save size-0 placeholders instead of weights"
        yield _fault("placeholders", what, GATHER_KEY, allowed="true, or leave the key out")


def _fault(code: str, message: str, *paths: str, allowed: str | None = None, recipe_key: str | None = None) -> Finding:
    keys = (*(f"{PREFIX}.{path}" for path in paths), *((recipe_key,) if recipe_key else ()))
    return Finding(level="error", code=f"deepspeed.{code}", message=message, keys=keys, allowed=allowed)
