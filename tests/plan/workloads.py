"""Workloads of published reports, built from the few numbers the reports give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from launcher.catalog import accelerators
from launcher.plan.stacks import Stack
from launcher.plan.workload import Hardware, Layout, Shape, Workload
from launcher.units import GIB

if TYPE_CHECKING:
    from launcher.plan.plan import Line

AUTOCAST_FSDP = Stack(name="autocast", family="fsdp", release=2023.5)
COMPOSER = Stack(name="composer", family="fsdp", release=2023.4)
MEGATRON = Stack(name="megatron", family="megatron", release=2024.58)
MEGATRON_2021 = Stack(name="megatron", family="megatron", release=2021.5)
MEGATRON_DEEPSPEED = Stack(name="megatron-deepspeed", family="megatron", release=2022.15)
TORCHTITAN = Stack(name="torchtitan", family="fsdp", release=2024.98)


def gpt(layers: int, hidden: int, heads: int, vocab: int, *, positions: int = 0) -> Shape:
    """A GPT with biases and tied embeddings."""
    return Shape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=4 * hidden,
        is_gated=False,
        vocab=vocab,
        is_tied=True,
        positions=positions,
        has_biases=True,
        has_layer_norm=True,
        has_tanh_gelu=True,
    )


def llama(layers: int, hidden: int, heads: int, kv: int, ffn: int, vocab: int, *, is_tied: bool = False) -> Shape:
    """A Llama (Qwen 1.5 has the same shape)."""
    return Shape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv,
        head_dim=hidden // heads,
        ffn=ffn,
        is_gated=True,
        vocab=vocab,
        is_tied=is_tied,
    )


LLAMA_7B = llama(32, 4096, 32, 32, 11008, 32000)
LLAMA3_8B = llama(32, 4096, 32, 8, 14336, 128256)
QWEN15_7B = llama(32, 4096, 32, 32, 11008, 151936)
BLOOM_181B = gpt(72, 14336, 64, 250880)


def on_gpus(name: str, *, node: int = 8, network: float = 200.0, is_infiniband: bool = True) -> Hardware:
    """8-GPU NVLink boards (2-GPU PCIe nodes for ``node=2``), ``network`` Gb/s a GPU between nodes."""
    device = accelerators.find(name)
    link = {"volta": 150e9, "ampere": 300e9, "hopper": 450e9}[device.architecture] if node == 8 else 32e9
    return Hardware(
        accelerator=device,
        gpus_per_node=node,
        island=node if node == 8 else 1,
        link_bytes_per_second=link,
        network_bytes_per_second=network * 1e9 / 8,
        is_infiniband=is_infiniband,
        pcie_bytes_per_second=32e9,
        host_bytes_per_second=26e9,
    )


def layout(gpus: int, **axes: Any) -> Layout:
    """A layout of ``gpus`` ranks; what is left over is data-parallel and shards together."""
    data = gpus // (axes.get("tensor", 1) * axes.get("pipeline", 1) * axes.get("context", 1))
    return Layout(**{"data": data, "shard_group": data * axes.get("context", 1), **axes})


def workload(
    shape: Shape, stack: Stack, hardware: Hardware, axes: Layout, *, seq: int, micro: int, micros: int = 1, **keys: Any
) -> Workload:
    """The workload itself."""
    return Workload(
        shape=shape,
        layout=axes,
        hardware=hardware,
        stack=stack,
        seq=seq,
        micro_batch=micro,
        micro_batches=micros,
        **keys,
    )


def gib(lines: tuple[Line, ...], *names: str) -> float:
    """Sum of the lines that begin with one of ``names``."""
    return sum(line.bytes for line in lines if line.name.startswith(names)) / GIB
