"""Constants of software: what measurements of whole training runs taught beyond the rates of the devices.

Each constant has a prior (what its source says, and how surely) and a fitted value: ``tests/published/fit.py`` finds
the values that explain the published step times best without straying from the priors, and writes them into
``calibrated.py``. Nobody edits those by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def constant(prior: float, sigma: float, low: float, high: float) -> Any:
    """A constant: prior and its standard deviation, and the bounds beyond which it makes no sense."""
    return field(default=prior, metadata={"prior": prior, "sigma": sigma, "low": low, "high": high})


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Fitted constants, with the stack and releases each was seen in."""

    sustained_ampere: float = constant(1.0, 0.05, 0.7, 1.15)
    """Products in a long run against the microbenchmark: A100, every stack."""
    sustained_hopper: float = constant(0.9, 0.05, 0.6, 1.15)
    """H100 and H200 at 700 W, every stack: clocks fall under sustained load."""
    sustained_blackwell: float = constant(0.92, 0.06, 0.6, 1.2)
    """B200 to GB300, bf16, Megatron 2025-2026."""
    sustained_blackwell_fp8: float = constant(1.0, 0.08, 0.6, 1.4)
    """B200 to GB300, 8-bit products, Megatron 2025-2026."""
    power_exponent: float = constant(0.8, 0.2, 0.0, 1.6)
    """Speed against power limit, (watts / reference)^x: H100 at 500 and 700 W, GB200 at 1200 and GB300 at 1400 W."""
    nvfp4_share: float = constant(0.95, 0.1, 0.3, 1.3)
    """4-bit products against the share of peak that 16-bit products reach: Megatron 2026."""
    fp8_rowwise_share: float = constant(0.5, 0.15, 0.2, 1.0)
    """Row-scaled fp8 products against tensor-scaled ones: torchtitan 2025."""
    triton_attention: float = constant(0.7, 0.1, 0.3, 1.1)
    """Triton FlashAttention (1) against FlashAttention 2: llm-foundry 2023."""
    cudnn_attention_hopper: float = constant(0.62, 0.05, 0.3, 0.75)
    """Share of the bf16 peak, forward: Megatron on Hopper since 2024 (FlashAttention 3, arXiv:2407.08608, figure 5)."""
    cudnn_attention_blackwell: float = constant(0.55, 0.06, 0.2, 0.8)
    """Share of the bf16 peak, forward: Megatron on Blackwell."""
    attention_backward: float = constant(0.78, 0.06, 0.4, 1.1)
    """Rate of the backward kernel against the forward one (FlashAttention 2, arXiv:2307.08691, figures 4 and 5)."""
    attention_half_length: float = constant(700.0, 300.0, 0.0, 4000.0)
    """Tokens at which fused attention reaches half of its long-sequence rate."""
    memory_fused: float = constant(1.1, 0.25, 0.4, 3.0)
    """Traffic of norms, activations, residuals, rotations against layer_time's count: Megatron, torch.compile."""
    memory_eager: float = constant(1.5, 0.4, 0.6, 6.0)
    """The same, one kernel an operation: llm-foundry 2023."""
    memory_eager_gated: float = constant(3.0, 0.7, 0.8, 8.0)
    """The same with RMSNorm, rotations and gates, each several kernels in fp32: torchtitan eager 2024."""
    memory_old_megatron: float = constant(1.0, 0.4, 0.1, 4.0)
    """The same: Megatron-LM 2021-2022 and Megatron-DeepSpeed."""
    loss_bytes_eager: float = constant(30.0, 8.0, 6.0, 80.0)
    """Traffic per logit of softmax, loss and their gradients: eager."""
    loss_bytes_fused: float = constant(16.0, 6.0, 3.0, 60.0)
    """The same: fused."""
    quantise_tensor: float = constant(1.0, 0.3, 0.2, 4.0)
    """Traffic of casting to tensor-scaled fp8 against reading 2 and writing 2 bytes: Transformer Engine, torchao."""
    quantise_block: float = constant(1.8, 0.5, 0.5, 6.0)
    """The same for block-scaled MXFP8, which casts rows and columns apart."""
    quantise_nvfp4: float = constant(3.0, 1.0, 0.5, 10.0)
    """The same for NVFP4 with its Hadamard transforms and stochastic rounding."""
    megatron_deepspeed: float = constant(1.12, 0.05, 1.0, 1.4)
    """Step time of Megatron-DeepSpeed 2021-2022 against Megatron-LM of the time (BLOOM, MT-NLG, NeoX)."""
    megatron_deepspeed_fp16: float = constant(1.04, 0.02, 1.0, 1.15)
    """Further factor of its fp16 engine (BLOOM prequel)."""
    tensor_overlap: float = constant(0.5, 0.15, 0.0, 1.0)
    """Share of tensor-parallel communication hidden by Transformer Engine's user buffers: Megatron since 2023.9."""
    tensor_overlap_async: float = constant(0.5, 0.2, 0.0, 1.0)
    """Share hidden by asynchronous tensor parallelism: torchtitan."""
    tensor_link: float = constant(0.75, 0.1, 0.4, 1.1)
    """Bandwidth of tensor-parallel collectives beside compute, against nccl-tests alone."""
    data_overlap: float = constant(0.8, 0.1, 0.0, 1.0)
    """Share of gradient and parameter exchange hidden by Megatron's distributed optimizer since 2023.9."""
    fsdp_contention: float = constant(0.5, 0.15, 0.0, 1.2)
    """Slow-down of compute by hidden FSDP traffic, as a share of that traffic's time over NVLink."""
    fsdp_seconds_per_rank: float = constant(2e-6, 1e-6, 0.0, 2e-5)
    """Latency of one FSDP collective per rank of its group."""
    network_share: float = constant(0.8, 0.08, 0.5, 0.95)
    """Bandwidth between nodes beside compute, against line rate."""
    deepspeed_gather_rate: float = constant(30.0, 8.0, 5.0, 200.0)
    """GB/s at which one rank's ZeRO-3 gathers run over links that are no limit: DeepSpeed 2021-2022."""
    deepspeed_overlap: float = constant(0.5, 0.1, 0.0, 1.0)
    """Share of ZeRO-3 traffic hidden since DeepSpeed 0.5 (late 2021)."""
    straggling_megatron: float = constant(0.004, 0.002, 0.0, 0.03)
    """Slow-down per doubling of replicas: Megatron (dgxc-benchmarking, weak scaling)."""
    straggling_fsdp: float = constant(0.015, 0.004, 0.0, 0.04)
    """The same per doubling of nodes: FSDP, which synchronises all ranks every layer (llm-foundry, weak scaling)."""
    fixed_megatron: float = constant(0.02, 0.01, 0.0, 0.1)
    """Seconds a step on the host: Megatron."""
    fixed_fsdp: float = constant(0.03, 0.01, 0.0, 0.1)
    """Seconds a step on the host, eager optimizer included: FSDP and DDP."""
    optimizer_passes: float = constant(1.2, 0.3, 0.6, 6.0)
    """Traffic of Adam against 30 bytes a parameter."""
    release_blackwell: float = constant(0.12, 0.04, 0.0, 0.25)
    """Speed-up a year of Megatron on Blackwell until mid 2026."""
    release_hopper: float = constant(0.03, 0.01, 0.0, 0.15)
    """Speed-up a year of Megatron on Hopper and Ampere until mid 2026."""
    unaligned_heads: float = constant(3.0, 1.0, 1.0, 12.0)
    """Slow-down of score products whose head width is no multiple of 8 (BLOOM prequel, 128 heads of 108)."""
    context_seconds_per_step: float = constant(40e-6, 20e-6, 0.0, 300e-6)
    """Cost of each exchange of the ring of context ranks."""
    expert_seconds_2024: float = constant(8e-3, 4e-3, 0.0, 30e-3)
    """Host time per layer with many small experts: Megatron before 2025.6."""
    expert_seconds_2025: float = constant(4e-4, 3e-4, 0.0, 4e-3)
    """The same: 2025.6 to 2026.4, and Hopper after."""
    expert_seconds_2026: float = constant(1e-4, 1e-4, 0.0, 4e-3)
    """The same: Blackwell since 2026.4 (CUDA graphs)."""
    expert_passes_2025: float = constant(30.0, 10.0, 4.0, 100.0)
    """Times a routed token's hidden state crosses memory (permute, cast, combine; forward and backward): to 2026.4."""
    expert_passes_2026: float = constant(15.0, 5.0, 4.0, 60.0)
    """The same: Blackwell since 2026.4."""
    expert_products: float = constant(0.9, 0.07, 0.4, 1.1)
    """Grouped products of experts against single ones of their size."""
    expert_link: float = constant(0.7, 0.1, 0.05, 1.0)
    """Bandwidth of token exchange inside an island against the link's."""
    expert_overlap: float = constant(0.5, 0.15, 0.0, 0.95)
    """Share of token exchange between nodes that is hidden."""


LIMITS = {each.name: (each.metadata["low"], each.metadata["high"]) for each in fields(Calibration)}
"""Name of each constant -> the bounds beyond which it makes no sense."""


@cache
def shipped() -> Calibration:
    """The constants this release ships."""
    from launcher.plan.calibrated import VALUES

    return Calibration(**VALUES)


HALF_WIDTH = "half_width"
"""Beside constants in a recipe's ``calibration``: the logarithmic half width of the interval around a step time."""


def constants_of(own: Mapping[str, float]) -> Calibration:
    """The shipped constants with a team's ``own`` (a recipe's ``calibration``) in their place."""
    return _with_own(tuple(sorted(own.items()))) if own else shipped()


@cache
def _with_own(values: tuple[tuple[str, float], ...]) -> Calibration:
    return replace(shipped(), **{name: value for name, value in values if name in LIMITS})
