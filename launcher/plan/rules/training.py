"""Rules of batch, length, duration and precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.batch import nearest_multiples
from launcher.plan.rules.case import divisors, finding, nearest_first, spoken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Finding
    from launcher.plan.rules.case import Case

_GLOBAL, _MICRO = "training.global_batch_size", "training.micro_batch_size"
_NODES = "cluster.instance_count"
_ACCUMULATION = "training.gradient_accumulation_steps"


def duration(case: Case) -> Iterator[Finding]:
    """Exactly one of steps and tokens says how long."""
    training = case.recipe.training
    keys = ("training.train_steps", "training.train_tokens")
    if (training.train_steps is None) != (training.train_tokens is None):
        return
    if training.train_steps is None:
        yield finding(
            "error",
            "duration",
            "neither train_steps nor train_tokens says how long to train",
            *keys,
            allowed="exactly one of the two",
            edits=(("training.train_steps=1000",), ("training.train_tokens=1000000000",)),
        )
    else:
        yield finding(
            "error",
            "duration",
            f"train_steps = {training.train_steps} and train_tokens = {training.train_tokens} are both given",
            *keys,
            allowed="exactly one of the two",
            edits=(("training.train_tokens=null",), ("training.train_steps=null",)),
        )


def nothing_to_read(case: Case) -> Iterator[Finding]:
    """A recipe for shards waits for whoever uses it to name them; planning needs none."""
    if case.recipe.data.train or case.recipe.entry.script is not None:
        return
    yield finding(
        "note",
        "nothing_to_read",
        "data.train names nothing to read: name your corpus before submitting",
        "data.train",
        allowed="shards by their prefix, .txt, .jsonl or .parquet files, or demo",
        edits=(("data=demo",),),
    )


def global_batch(case: Case) -> Iterator[Finding]:
    """Micro x data divides the global batch; never truncated."""
    training = case.recipe.training
    if case.world % case.model_ranks:
        return
    data = case.world // case.model_ranks
    if training.global_batch_size % (training.micro_batch_size * data) == 0:
        return
    unit = training.micro_batch_size * data
    globals_ = nearest_multiples(training.global_batch_size, unit)
    edits = [(f"{_GLOBAL}={choice}",) for choice in nearest_first(globals_, training.global_batch_size)]
    edits = [(f"{_NODES}={nodes}",) for nodes in _fewer_nodes(case)] + edits
    if training.global_batch_size % data == 0:
        micros = divisors(training.global_batch_size // data)
        edits = [(f"{_MICRO}={choice}",) for choice in nearest_first(micros, training.micro_batch_size)[:1]] + edits
    yield finding(
        "error",
        "global_batch",
        f"global batch {training.global_batch_size} is not a multiple of micro {training.micro_batch_size} x data "
        f"{data} = {unit}",
        _GLOBAL,
        _MICRO,
        "cluster.instance_count",
        allowed=f"nearest valid: {' or '.join(map(str, globals_))}",
        edits=edits[:3],
    )


def _fewer_nodes(case: Case) -> list[int]:
    """The most nodes, fewer than asked, whose data-parallel ranks divide the batch; none or one."""
    training = case.recipe.training
    shares = divisors(training.global_batch_size // training.micro_batch_size, most=case.world // case.model_ranks)
    ranks = [
        share * case.model_ranks for share in shares if training.global_batch_size % training.micro_batch_size == 0
    ]
    return [rank // case.processes for rank in ranks if rank % case.processes == 0][-1:]


def accumulation(case: Case) -> Iterator[Finding]:
    """An accumulation that was given must be the one that follows."""
    training = case.recipe.training
    asked = training.gradient_accumulation_steps
    if asked is None or case.world % case.model_ranks:
        return
    data = case.world // case.model_ranks
    if training.micro_batch_size * asked * data == training.global_batch_size:
        return
    product = training.micro_batch_size * data * asked
    yield finding(
        "error",
        "accumulation",
        f"the batch does not multiply out: {training.global_batch_size} != {training.micro_batch_size} micro x {asked} "
        f"accumulation x {data} data = {product}",
        _ACCUMULATION,
        _GLOBAL,
        _MICRO,
        allowed="leave gradient_accumulation_steps out: it is derived",
        edits=((f"{_ACCUMULATION}=null",), (f"{_GLOBAL}={product}",)),
    )


def interleaved_batches(case: Case) -> Iterator[Finding]:
    """The interleaved schedule works in groups of as many micro batches as there are pipeline ranks (Megatron-LM)."""
    layout, training = case.recipe.parallelism, case.recipe.training
    pipeline, virtual = layout.pipeline_parallel_size, layout.virtual_pipeline_parallel_size or 1
    if virtual == 1 or pipeline == 1 or case.world % case.model_ranks:
        return
    per_pass = training.micro_batch_size * (case.world // case.model_ranks)
    micro_batches, rest = divmod(training.global_batch_size, per_pass)
    if rest or micro_batches % pipeline == 0:
        return
    more = nearest_multiples(training.global_batch_size, per_pass * pipeline)
    yield finding(
        "error",
        "interleaved_batches",
        f"interleaving needs micro batches in multiples of {pipeline} pipeline ranks; there are {micro_batches}",
        "parallelism.virtual_pipeline_parallel_size",
        _GLOBAL,
        allowed=f"global batch {spoken(more)}, or no virtual stages",
        edits=(("parallelism.virtual_pipeline_parallel_size=null",), *((f"{_GLOBAL}={n}",) for n in more)),
    )


def few_micro_batches(case: Case) -> Iterator[Finding]:
    """A pipeline with fewer micro batches than stages is idle most of the time."""
    layout, training = case.recipe.parallelism, case.recipe.training
    pipeline = layout.pipeline_parallel_size
    if pipeline == 1 or case.world % case.model_ranks:
        return
    data = case.world // case.model_ranks
    micro_batches, rest = divmod(training.global_batch_size, training.micro_batch_size * data)
    if rest or micro_batches >= pipeline:
        return
    yield finding(
        "warning",
        "few_micro_batches",
        f"{micro_batches} micro batches keep {pipeline} pipeline stages busy "
        f"{micro_batches / (micro_batches + pipeline - 1):.0%} of the time",
        "parallelism.pipeline_parallel_size",
        _GLOBAL,
        _MICRO,
    )


def sequence_length(case: Case) -> Iterator[Finding]:
    """No sequence is longer than the positions the model has."""
    model, seq = case.recipe.model, case.recipe.training.seq_length
    if seq <= model.max_position_embeddings:
        return
    yield finding(
        "error",
        "sequence_length",
        f"sequences of {seq} tokens are longer than the model's {model.max_position_embeddings} positions",
        "training.seq_length",
        "model.max_position_embeddings",
        allowed=f"at most {model.max_position_embeddings}",
        edits=(
            (f"training.seq_length={model.max_position_embeddings}",),
            (f"model.max_position_embeddings={seq}",),
        ),
    )


def head_width(case: Case) -> Iterator[Finding]:
    """Heads have one whole width, and query heads share key/value heads evenly."""
    model = case.recipe.model
    heads, kv_heads = model.num_attention_heads, model.num_key_value_heads or model.num_attention_heads
    if model.head_dim is None and model.hidden_size % heads:
        choices = [n for n in divisors(model.hidden_size) if n % kv_heads == 0] or [1]
        yield finding(
            "error",
            "head_width",
            f"hidden size {model.hidden_size} does not divide into {heads} heads",
            "model.num_attention_heads",
            "model.hidden_size",
            "model.head_dim",
            allowed="a divisor of the hidden size, or an explicit head_dim",
            edits=((f"model.num_attention_heads={nearest_first(choices, heads)[0]}",),),
        )
    if heads % kv_heads:
        yield finding(
            "error",
            "kv_heads",
            f"{heads} query heads do not share {kv_heads} key/value heads evenly",
            "model.num_key_value_heads",
            "model.num_attention_heads",
            allowed=spoken(divisors(heads)),
            edits=((f"model.num_key_value_heads={n}",) for n in nearest_first(divisors(heads), kv_heads)[:3]),
        )


def selective_fused(case: Case) -> Iterator[Finding]:
    """Fused attention keeps 4 bytes a head and token (arXiv:2205.14135): computing it twice frees next to nothing."""
    training = case.recipe.training
    if training.activation_checkpointing != "selective" or training.attention == "eager":
        return
    key = "training.activation_checkpointing"
    yield finding(
        "note",
        "selective_fused",
        f"{training.attention} attention keeps no scores: selective recomputation pays for a second attention pass and "
        "frees almost nothing",
        key,
        "training.attention",
        allowed="none, or full where memory is short",
        edits=((f"{key}=none",), (f"{key}=full",)),
    )


def warmup(case: Case) -> Iterator[Finding]:
    """A warm-up longer than the run never reaches the peak learning rate."""
    training = case.recipe.training
    steps = training.train_steps
    if steps is None and training.train_tokens is not None:
        steps = -(-training.train_tokens // (training.global_batch_size * training.seq_length))
    if steps is not None and training.schedule.warmup_steps >= steps > 1:
        yield finding(
            "warning",
            "warmup",
            f"{training.schedule.warmup_steps} warm-up steps are no fewer than the {steps} steps of the run",
            "training.schedule.warmup_steps",
            "training.train_steps",
            edits=((f"training.schedule.warmup_steps={max(1, steps // 100)}",),),
        )


def precision(case: Case) -> Iterator[Finding]:
    """The accelerator must have matrix products in the asked precision."""
    device, asked = case.accelerator, case.recipe.training.precision
    if device is None or device.peak_flops(asked) is not None or device.peak_flops("fp16") is None:
        return
    choices = [name for name in ("bf16", "fp16", "fp32") if device.peak_flops(name) is not None]
    yield finding(
        "error",
        "precision",
        f"{device.name} has no {asked} matrix products",
        "training.precision",
        "cluster.instance_type",
        allowed=", ".join(choices),
        edits=((f"training.precision={name}",) for name in choices),
    )
