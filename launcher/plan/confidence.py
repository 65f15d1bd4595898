"""How sure a prediction is: which kind of measurement it resembles, and how far those were off when left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from launcher.plan.profile import OVERLAPPING_MEGATRON

if TYPE_CHECKING:
    from launcher.plan.workload import Workload

Regime = Literal["experts", "context", "megatron", "old-megatron", "fsdp", "deepspeed", "none"]

COVERAGE = 0.8
"""Share of measurements that shall lie inside the interval."""
OUTSIDE = 2.0
"""Half width outside calibration, against inside: nothing was measured there, so this is a judgement."""

_SEEN: dict[Regime, tuple[str, ...]] = {
    # architectures with published runs of the regime in tests/published/
    "experts": ("hopper", "blackwell"),
    "context": ("hopper", "blackwell"),
    "megatron": ("ampere", "hopper", "blackwell"),
    "old-megatron": ("ampere",),
    "fsdp": ("ampere", "hopper"),
    "deepspeed": ("ampere",),
    "none": (),
}
_MOST_RANKS = 16_384
_LONGEST = 262_144


def regime(workload: Workload) -> Regime:
    """The kind of published run this resembles most."""
    if workload.hardware.accelerator.architecture == "cpu":
        return "none"
    if workload.shape.is_moe:
        return "experts"
    if workload.layout.context > 1:
        return "context"
    if workload.stack.family == "megatron":
        is_old = workload.stack.release < OVERLAPPING_MEGATRON and workload.stack.name != "megascale"
        return "old-megatron" if is_old else "megatron"
    return "deepspeed" if workload.stack.family == "deepspeed" else "fsdp"


def outside_reasons(workload: Workload) -> tuple[str, ...]:
    """Why nothing like ``workload`` was measured; empty inside calibration."""
    device, layout, known = workload.hardware.accelerator, workload.layout, regime(workload)
    reasons = {
        f"no published run on {device.name} ({known})": device.architecture not in _SEEN[known],
        "no published run over Ethernet or PCIe": layout.world > workload.hardware.island
        and not workload.hardware.is_infiniband,
        "no published run with ZeRO-Offload's optimizer on these hosts": layout.offload_optimizer
        or layout.offload_parameters,
        f"no published run of more than {_MOST_RANKS} GPUs": layout.world > _MOST_RANKS,
        f"no published run of sequences beyond {_LONGEST} tokens": workload.seq > _LONGEST,
        "no published run of low-rank adapters under this stack": workload.lora_rank > 0
        and workload.stack.name != "megatron",
        f"no published run in {workload.precision} on {device.name}": workload.precision == "fp32",
    }
    return tuple(reason for reason, holds in reasons.items() if holds)


def half_width(workload: Workload, own: float | None = None) -> float:
    """Logarithmic half width of the interval around the predicted step time; ``own``: of a team's own calibration."""
    from launcher.plan.calibrated import SPREADS

    if own is not None:
        return own
    inside = SPREADS.get(regime(workload), max(SPREADS.values()))
    return inside * (OUTSIDE if outside_reasons(workload) else 1.0)
