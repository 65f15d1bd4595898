"""What a stack does, as the predictors need it: which kernels, what overlaps, which fitted constants apply."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from launcher.plan.rates import FLASH2_FORWARD

if TYPE_CHECKING:
    from launcher.plan.calibration import Calibration
    from launcher.plan.stacks import Stack

OVERLAPPING_MEGATRON = 2023.3
"""Since Megatron-Core (2023): communication overlaps compute."""
GRAPHED_EXPERTS = 2026.45
"""Since the releases of mid 2026: experts without host time between kernels, on Blackwell."""
UNGRAPHED_EXPERTS = 2025.6
ASYNCHRONOUS_BACKWARD = 2022.0
"""Since Megatron-LM 3 (early 2022): backward tensor-parallel collectives run beside the products that give the
gradients of weights (arXiv:2205.05198, section 4.2.2); Megatron-DeepSpeed of the time had branched off before."""
PREFETCHING_DEEPSPEED = 2021.7
"""DeepSpeed 0.5: ZeRO-3 fetches ahead."""

Kind = Literal["megatron", "old-megatron", "fsdp", "deepspeed"]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One stack on one architecture, constants resolved."""

    kind: Kind
    memory_traffic: float
    loss_bytes: float
    attention_share: float
    """Of the bf16 peak, fused forward attention over long sequences."""
    tensor_overlap: float
    tensor_overlap_backward: float
    data_overlap: float
    hides_pipeline: bool
    """Whether pipeline transfers run beside compute."""
    stragglers: float
    fixed_seconds: float
    release_factor: float
    expert_seconds: float
    expert_passes: float
    gradient_wire_bytes: float
    """Bytes a parameter of the gradients each rank sends (before the ring's 2x)."""


@lru_cache(maxsize=1024)
def profile(
    stack: Stack, family: str, constants: Calibration, *, is_compiled: bool, is_async: bool, is_gated: bool
) -> Profile:
    """The profile of ``stack`` on devices of ``family``.

    ``is_async``: asynchronous tensor parallelism is on. ``is_gated``: layers are Llama's rather than GPT's.
    """
    kind = _kind(stack)
    eager_loss = not is_compiled and kind in ("fsdp", "deepspeed")
    return Profile(
        kind=kind,
        memory_traffic=_memory_traffic(kind, constants, is_compiled=is_compiled, is_gated=is_gated),
        loss_bytes=constants.loss_bytes_eager if eager_loss else _fused_loss(kind, constants, is_compiled),
        attention_share=_attention_share(stack, family, constants),
        tensor_overlap=_tensor_overlap(stack, kind, constants, is_async=is_async),
        tensor_overlap_backward=_tensor_overlap_backward(stack, kind, constants, is_async=is_async),
        data_overlap=constants.data_overlap if kind == "megatron" and stack.name != "megatron-2023" else 0.0,
        hides_pipeline=kind == "megatron" and stack.name not in ("megatron-2023", "meta"),
        stragglers=constants.straggling_megatron if "megatron" in kind else constants.straggling_fsdp,
        fixed_seconds=_fixed_seconds(kind, constants),
        release_factor=_release_factor(stack, family, constants),
        expert_seconds=_expert_seconds(stack, family, constants),
        expert_passes=constants.expert_passes_2026 if _is_graphed(stack, family) else constants.expert_passes_2025,
        gradient_wire_bytes=2.0 if kind in ("megatron", "old-megatron") else 4.0,
    )


def _kind(stack: Stack) -> Kind:
    if stack.name == "megatron-deepspeed" or (stack.name == "megatron" and stack.release < OVERLAPPING_MEGATRON):
        return "old-megatron"
    if stack.family == "megatron":
        return "megatron"
    return "deepspeed" if stack.family == "deepspeed" else "fsdp"


def _memory_traffic(kind: Kind, constants: Calibration, *, is_compiled: bool, is_gated: bool) -> float:
    if kind == "old-megatron":
        return constants.memory_old_megatron
    if kind == "megatron" or is_compiled:
        return constants.memory_fused
    return constants.memory_eager_gated if is_gated else constants.memory_eager


def _fused_loss(kind: Kind, constants: Calibration, is_compiled: bool) -> float:
    fused = is_compiled or kind == "megatron"
    return constants.loss_bytes_fused if fused else constants.loss_bytes_eager


def _attention_share(stack: Stack, family: str, constants: Calibration) -> float:
    flash = FLASH2_FORWARD.get(family, 0.4)
    if stack.name == "composer":
        return constants.triton_attention * flash
    if family == "blackwell":  # torch's scaled_dot_product_attention runs cuDNN's kernels there too
        return constants.cudnn_attention_blackwell
    if stack.name == "megatron" and family == "hopper":
        return constants.cudnn_attention_hopper
    return flash


def _tensor_overlap(stack: Stack, kind: Kind, constants: Calibration, *, is_async: bool) -> float:
    if kind == "megatron" and stack.name not in ("megatron-2023", "meta"):
        return constants.tensor_overlap
    return constants.tensor_overlap_async if is_async else 0.0


def _tensor_overlap_backward(stack: Stack, kind: Kind, constants: Calibration, *, is_async: bool) -> float:
    if stack.name == "megatron" and kind == "old-megatron" and stack.release >= ASYNCHRONOUS_BACKWARD:
        return constants.tensor_overlap
    return _tensor_overlap(stack, kind, constants, is_async=is_async)


def _fixed_seconds(kind: Kind, constants: Calibration) -> float:
    if kind == "old-megatron":
        return 0.0  # steps of minutes: nothing to see
    return constants.fixed_megatron if kind == "megatron" else constants.fixed_fsdp


def _release_factor(stack: Stack, family: str, constants: Calibration) -> float:
    """How much slower than mid 2026 a release of Megatron is."""
    if stack.name != "megatron" or stack.release < OVERLAPPING_MEGATRON:
        return 1.0
    yearly = constants.release_blackwell if family == "blackwell" else constants.release_hopper
    return float((1 + yearly) ** max(0.0, 2026.5 - stack.release))


def _is_graphed(stack: Stack, family: str) -> bool:
    return family == "blackwell" and stack.release >= GRAPHED_EXPERTS


def _expert_seconds(stack: Stack, family: str, constants: Calibration) -> float:
    if stack.release < UNGRAPHED_EXPERTS:
        return constants.expert_seconds_2024
    return constants.expert_seconds_2026 if _is_graphed(stack, family) else constants.expert_seconds_2025
