"""A row of a published table (the columns of ``tests/published/README.md``) as a workload and what was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from launcher.catalog import accelerators
from launcher.plan.stacks import published_stack
from launcher.plan.workload import Hardware, Layout, Shape, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.plan.workload import Recompute

    Row = Mapping[str, str]

_PCIE_BYTES_PER_SECOND = {"ampere": 32e9, "hopper": 64e9, "blackwell": 64e9}
_HOST_BYTES_PER_SECOND = {"ampere": 26e9, "hopper": 51e9, "blackwell": 201e9}
"""azure_hbm_attn.csv, h2d."""
_LINK_BYTES_PER_SECOND = {"volta": 150e9, "ampere": 300e9, "hopper": 450e9, "blackwell": 900e9}
"""One-way NVLink per GPU of the 8-GPU boards and NVL72 racks the tables were measured on."""
_RACKS = ("GB200", "GB300")

PUBLISHED_LORA_RANK = 16
"""Of Megatron-Bridge's LoRA recipes; the tables print none."""

_UNPRINTED: dict[str, dict[str, int]] = {
    # What the columns do not hold, from each model's published config.json.
    "qwen3-30b-a3b": {"head_dim": 128, "has_qk_norm": True},
    "qwen3-235b-a22b": {"head_dim": 128, "has_qk_norm": True},
    "gpt-oss-120b": {"head_dim": 64, "window": 128, "windowed_layers": 18},
    "deepseek-v3": {
        "head_dim": 128,
        "query_rank": 1536,
        "kv_rank": 512,
        "rope_dim": 64,
        "dense_layers": 3,
        "prediction_layers": 1,
    },
    "kimi-k2": {"head_dim": 128, "query_rank": 1536, "kv_rank": 512, "rope_dim": 64, "dense_layers": 1},
    "llama4-maverick": {"head_dim": 128, "dense_layers": 24},
}


MemoryKind = Literal["device", "allocated", "states", "activations"]
"""What ``memory_gib`` counts: what the stack's log or nvidia-smi says, torch's largest allocation, or a part of it."""


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """One measured training configuration: a row of a published table, or a run of one's own."""

    id: str
    table: str
    group: str
    """Rows of one group measured the same physical configuration."""
    workload: Workload
    step_seconds: float | None
    memory_gib: float | None
    memory_kind: MemoryKind = "device"
    fits: bool | None = None
    """Whether it ran, where a report of memory says so; False is out of memory."""
    note: str


def published_row(row: Row) -> PublishedRow:
    """The row as a workload.

    Raises:
        ValueError: a column the model needs is empty or not a number (hybrid models without a printed shape).
    """
    return PublishedRow(
        id=row["id"],
        table=row["table"],
        group=row.get("group", ""),
        workload=_workload(row),
        step_seconds=_number(row, "step_s"),
        memory_gib=_number(row, "mem_gib"),
        memory_kind=_memory_kind(row),
        fits={"oom": False, "fits": True}.get(row.get("outcome", ""), True if row.get("mem_gib") else None),
        note=row.get("note", ""),
    )


def _memory_kind(row: Row) -> MemoryKind:
    known: dict[str, MemoryKind] = {"allocated": "allocated", "states": "states", "activations": "activations"}
    return known.get(row.get("mem_kind", ""), "device")


def _number(row: Row, name: str) -> float | None:
    text = row.get(name, "")
    return float(text) if text else None


def _count(row: Row, name: str, default: int | None = None) -> int:
    text = row.get(name, "")
    if not text:
        if default is None:
            raise ValueError(f"{row.get('id', 'row')}: column {name} is empty")
        return default
    return int(float(text))


def _workload(row: Row) -> Workload:
    layout = _layout(row)
    note = row.get("note", "")
    stack, is_compiled = published_stack(row["stack"], float(row["sw"]))
    per_rank = _count(row, "gbs") / layout.data
    micro = _micro_batch(row, stack.name, per_rank, layout.pipeline)
    shape = _shape(row, layout.tensor)
    rank = PUBLISHED_LORA_RANK if "LoRA" in note else 0
    return Workload(
        shape=shape,
        layout=layout,
        hardware=_hardware(row),
        stack=stack,
        seq=_count(row, "seq"),
        micro_batch=micro,
        micro_batches=max(1, math.ceil(per_rank / micro)),
        precision=row["prec"],
        recompute=_recompute(row["ac"]),
        has_flash=row.get("flash", "1") != "0" and not _lacks_fused_sinks(row, stack.release),
        is_compiled=is_compiled,
        overlaps_tensor="async-tp" in note or "async TP" in note,
        accumulates_fp32=_accumulates_fp32(row),
        lora_rank=rank,
        adapter_parameters=7 * rank * (shape.hidden + shape.ffn) * shape.layers,
    )


def _lacks_fused_sinks(row: Row, release: float) -> bool:
    """Attention sinks (gpt-oss) had no fused kernel before the releases of mid 2026: scores reached memory."""
    return row["model"].startswith("gpt-oss") and release < 2026.45


def _accumulates_fp32(row: Row) -> bool:
    """Not in NVIDIA's performance recipes since 2024 (``grad_reduce_in_fp32=False``), nor in fp16 Megatron-DeepSpeed.

    BLOOM's bf16 runs do from row 82 on: the same configuration (f7a4) grew from 44 to 67 GB, 4 bytes a parameter.
    """
    if row["stack"] == "megatron-deepspeed":
        is_early_bloom = row["table"] == "bigscience" and int(row["id"].rpartition("-")[2]) < 82
        return row["prec"] == "bf16" and not is_early_bloom
    return row["stack"] != "megatron" or float(row["sw"]) < 2024


def _micro_batch(row: Row, stack: str, per_rank: float, pipeline: int) -> int:
    """The column's, but for torchtitan pipelines: it cuts the local batch into as many micro batches as stages.

    torchtitan's ``pipeline_parallel_microbatches`` defaulted to the pipeline size; the table prints local batches
    only and its ``mbs`` of 1 is an assumption that its own ratio of 1F1B to interleaved (1.28) contradicts.
    """
    if stack == "torchtitan" and pipeline > 1:
        return max(1, round(per_rank / pipeline))
    return _count(row, "mbs", 1)


def _recompute(text: str) -> Recompute:
    known: dict[str, Recompute] = {
        "none": "none",
        "selective": "selective",
        "selective-op": "selective-op",
        "selective-layer": "selective-layer",
        "partial-1/2": "selective-layer",
        "full": "full",
    }
    return known[text or "none"]


def _shape(row: Row, tensor: int) -> Shape:
    hidden, heads = _count(row, "h"), _count(row, "heads")
    unprinted = dict(_UNPRINTED.get(row["model"], {}))
    is_gated, experts = _count(row, "glu") == 1, _count(row, "moe_E", 0)
    vocab, unit = _count(row, "vocab"), 128 * tensor
    return Shape(
        layers=_count(row, "L"),
        hidden=hidden,
        heads=heads,
        kv_heads=_count(row, "kv", heads),
        head_dim=unprinted.pop("head_dim", hidden // heads),
        ffn=_count(row, "ffn"),
        is_gated=is_gated,
        vocab=-(-vocab // unit) * unit,
        is_tied=_count(row, "tied") == 1,
        has_biases=not is_gated and not row["model"].startswith(("mpt", "nemotron")),
        has_layer_norm=not is_gated,
        experts=experts,
        experts_per_token=_count(row, "moe_k", 0),
        expert_ffn=_count(row, "moe_ffn", 0),
        shared_ffn=_count(row, "moe_shared_ffn", 0),
        **unprinted,  # type: ignore[arg-type]
    )


def _layout(row: Row) -> Layout:
    tensor, pipeline, context = (_count(row, name, 1) for name in ("tp", "pp", "cp"))
    data = _count(row, "dp", _count(row, "ngpus") // (tensor * pipeline * context))
    note = row.get("note", "")
    virtual = _count(row, "vp", 1)
    return Layout(
        tensor=tensor,
        pipeline=pipeline,
        virtual=virtual,
        context=context,
        expert=_count(row, "ep", 1),
        data=data,
        has_sequence_parallel=_count(row, "sp", 0) == 1,
        zero_stage=_count(row, "zero", 0),
        shard_group=_count(row, "shard_group", data * context) or data * context,
        offload_optimizer="offload" in note,
        offload_activations="activations" in note,
        schedule="interleaved" if virtual > 1 else "1f1b",
    )


def _hardware(row: Row) -> Hardware:
    device = accelerators.find(row["gpu"])
    island = 72 if device.name in _RACKS else 8
    family = device.architecture
    return Hardware(
        accelerator=device,
        gpus_per_node=4 if device.name in _RACKS else 8,
        island=island,
        link_bytes_per_second=_LINK_BYTES_PER_SECOND.get(family, 300e9),
        network_bytes_per_second=(_number(row, "fabric_gbps_per_gpu") or 200.0) * 1e9 / 8,
        is_infiniband=True,
        pcie_bytes_per_second=_PCIE_BYTES_PER_SECOND.get(family, 16e9),
        host_bytes_per_second=_HOST_BYTES_PER_SECOND.get(family, _PCIE_BYTES_PER_SECOND.get(family, 25e9)),
    )
