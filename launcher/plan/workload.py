"""What is computed, where and by which software: the few numbers that memory and step time depend on.

A recipe becomes a workload (``workload_of``), and so does a row of somebody's published table; everything that
predicts takes workloads only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from launcher.catalog.accelerator import Accelerator
    from launcher.plan.stacks import Stack

Recompute = Literal["none", "selective", "selective-op", "selective-layer", "partial-1/2", "full"]
"""What the backward pass computes again: nothing, attention, every other product, every other layer, half, all."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The shape of a decoder-only transformer, every width resolved."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    is_gated: bool
    """Whether the feed-forward block has a gate (three matrices) or not (two)."""
    vocab: int
    is_tied: bool
    """Whether the output projection is the embedding."""
    positions: int = 0
    """Rows of a learned position table; 0 for rotary positions."""
    has_biases: bool = False
    """Whether projections carry biases (GPT)."""
    has_layer_norm: bool = False
    """LayerNorm with weight and bias, rather than RMSNorm with a weight."""
    has_qk_norm: bool = False
    has_parallel_residual: bool = False
    """Attention and feed-forward block read the same input (GPT-NeoX)."""
    has_tanh_gelu: bool = False
    """GELU by transformers' own formula, an operation a kernel (GPT-2's ``gelu_new``)."""
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    """Width of the shared expert, which every token passes."""
    dense_layers: int = 0
    """Layers, out of ``layers``, that keep a dense feed-forward block although others have experts."""
    dropout: bool = False
    query_rank: int = 0
    """Rank of the compressed queries of multi-head latent attention (DeepSeek-V3); 0 for plain attention."""
    kv_rank: int = 0
    """Rank of the compressed keys and values of multi-head latent attention."""
    prediction_layers: int = 0
    """Extra layers, each with a head of its own, that predict later tokens (multi-token prediction)."""
    rope_dim: int = 0
    """Extra rotary width of each latent query and key head."""
    window: int = 0
    """Tokens a windowed layer looks back; 0 for full causal attention."""
    windowed_layers: int = 0
    """Layers, out of ``layers``, with a window."""

    @property
    def is_moe(self) -> bool:
        """Whether layers have experts."""
        return self.experts > 0

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.is_moe else 0


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Ranks along each axis, and what is sharded over the data axis."""

    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1
    context: int = 1
    expert: int = 1
    data: int = 1
    has_sequence_parallel: bool = False
    zero_stage: int = 0
    shard_group: int = 1
    """Ranks that share one copy of sharded state."""
    offload_optimizer: bool = False
    offload_parameters: bool = False
    offload_activations: bool = False
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero_bubble"] = "1f1b"

    @property
    def world(self) -> int:
        """All ranks."""
        return self.tensor * self.pipeline * self.context * self.data

    @property
    def replicas(self) -> int:
        """Ranks that hold the same parameters: data x context."""
        return self.data * self.context


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Accelerators and the links between them, as one rank sees them."""

    accelerator: Accelerator
    gpus_per_node: int
    island: int
    """GPUs that reach each other over NVLink; 1 when only PCIe joins them."""
    link_bytes_per_second: float
    """Inside the island, one direction, per GPU; PCIe when there is no NVLink."""
    network_bytes_per_second: float | None
    """Between nodes, one direction, per GPU; None when there is nothing known to cross."""
    is_infiniband: bool = True
    pcie_bytes_per_second: float = 25e9
    """Between GPUs of a node that no NVLink joins, one direction, per GPU."""
    host_bytes_per_second: float = 25e9
    """Between GPU and host memory, one direction, per GPU."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One training configuration, complete."""

    shape: Shape
    layout: Layout
    hardware: Hardware
    stack: Stack
    seq: int
    micro_batch: int
    """Sequences per data-parallel rank and forward pass."""
    micro_batches: int
    """Forward passes per optimizer step (gradient accumulation)."""
    precision: str = "bf16"
    """fp32, bf16, fp16, fp8 (also fp8-row, mxfp8, nvfp4 in published tables)."""
    recompute: Recompute = "none"
    has_flash: bool = True
    """Whether attention scores never reach device memory."""
    is_compiled: bool = False
    overlaps_tensor: bool = False
    """Whether tensor-parallel communication is split and overlapped with its product (asynchronous TP)."""
    accumulates_fp32: bool = True
    """Whether 16-bit gradients add up in fp32 (Megatron; Megatron-DeepSpeed since its BF16 optimizer does)."""
    buckets: tuple[int, int] = (500_000_000, 500_000_000)
    """DeepSpeed's reduce and gather buckets, elements (its defaults)."""
    lora_rank: int = 0
    """Rank of low-rank adapters; 0 trains every parameter."""
    adapter_parameters: int = 0
    """Of all adapters of the model."""

    @property
    def tokens(self) -> int:
        """Tokens of one micro batch on one rank."""
        return self.micro_batch * self.seq // self.layout.context

    @property
    def expert_tensor(self) -> int:
        """Tensor ranks that share the columns of each expert: all under our engines, as in a dense layer.

        1 in Megatron's recipes, whose tensor ranks hold other experts (``expert_tensor_parallel_size: 1``).
        """
        return 1 if self.stack.family == "megatron" else self.layout.tensor

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same part of the same experts."""
        layout = self.layout
        return max(1, layout.world // (layout.pipeline * layout.expert * self.expert_tensor))

    @property
    def global_batch(self) -> int:
        """Sequences per optimizer step."""
        return self.micro_batch * self.micro_batches * self.layout.data
