"""Peak bytes on the fullest GPU, a line per cause.

Every pipeline rank is looked at: the first keeps the activations of most micro batches, the last has the logits. The
peak of a rank is when its backward pass begins: states, all saved activations, and the loss or one layer recomputed.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from launcher.plan.activations import boundary_bytes, is_eager, kept_bytes, layer_bytes, tail_bytes, width
from launcher.plan.calibrated import MEMORY
from launcher.plan.local_parameters import fullest_layers, local_parameters
from launcher.plan.plan import Line, Memory
from launcher.plan.states import context_bytes, start_bytes, states

if TYPE_CHECKING:
    from launcher.plan.plan import Verdict
    from launcher.plan.published_row import MemoryKind
    from launcher.plan.states import States
    from launcher.plan.workload import Workload

OLD_ALLOCATOR = 2023.0
"""torch before 2.0."""
TIGHT = 0.85
"""From this share of usable memory on, a plan is called tight."""
UNCERTAINTY = 0.10
"""Half width of the 80 % interval, of the total: from the published rows, tests/plan/test_published_memory.py."""
PIECE_LOGITS = 1 << 26
"""Our trainer makes this many logits at once and makes them again in the backward pass (cross_entropy.py)."""
HOST_COPIES = 1.5
"""DeepSpeed's own factor on offloaded state, for pinned buffers (zero_cpu_memory_estimators)."""
FUSED_LOSS_RELEASE = 2025.2
"""torch.compile fuses cast, softmax and loss in torchtitan from here on: fp32 logits are never whole."""


class Rank(NamedTuple):
    """The memory of one pipeline rank, by cause."""

    name: str
    states: States
    activations: float
    working: float
    """The layer being recomputed, or the one whose gradients are being computed."""
    logits: float

    @property
    def allocated(self) -> float:
        """What the framework's allocator holds, before rounding."""
        return sum(self.states) + self.activations + max(self.working, self.logits)


def make_memory(workload: Workload, *, usable_bytes: int | None, processes_per_node: int) -> Memory:
    """The memory of the fullest rank, line by line, against ``usable_bytes``."""
    fullest = fullest_rank(workload)
    lines = _lines(workload, fullest)
    total = sum(line.bytes for line in lines)
    local = local_parameters(workload, layers=fullest_layers(workload), has_first=True, has_last=True)
    return Memory(
        bytes_per_gpu=total,
        low_bytes=round(total * (1 - UNCERTAINTY)),
        high_bytes=round(total * (1 + UNCERTAINTY)),
        usable_bytes=usable_bytes,
        verdict=verdict(total, usable_bytes),
        worst=fullest.name,
        start_bytes=round(start_bytes(workload, local)),
        host_bytes_per_node=round(host_bytes(workload) * processes_per_node),
        lines=lines,
    )


def verdict(total: int, usable_bytes: int | None) -> Verdict:
    """Whether ``total`` fits: tight from 85 % of usable on."""
    if usable_bytes is None:
        return "unknown"
    if total > usable_bytes:
        return "does_not_fit"
    return "tight" if total >= TIGHT * usable_bytes else "fits"


def total_bytes(workload: Workload) -> float:
    """The fullest rank's device memory."""
    rank = fullest_rank(workload)
    return rank.allocated + _rounding(workload, rank) + context_bytes(workload)


def reported_bytes(workload: Workload, kind: MemoryKind = "device") -> float:
    """What a report counts; of the whole device, torchtitan's log prints the allocator's reserve alone."""
    rank = fullest_rank(workload)
    if kind == "allocated":
        return rank.allocated
    if kind == "states":
        return rank.states.parameters + rank.states.gradients + rank.states.optimizer
    if kind == "activations":
        return rank.activations
    outside = context_bytes(workload) if workload.stack.name == "torchtitan" else 0.0
    return total_bytes(workload) - outside


def fullest_rank(workload: Workload) -> Rank:
    """The rank with most allocated: the first stage or the last (one rank without a pipeline)."""
    layout, layers = workload.layout, fullest_layers(workload)
    if layout.pipeline == 1:
        return _rank(workload, "every rank", layers=layers, flights=1.0, has_first=True, has_last=True)
    first = _rank(workload, "stage 0", layers=layers, flights=in_flight(workload), has_first=True, has_last=False)
    number = layout.pipeline - 1
    last = _rank(
        workload, f"stage {number}", layers=layers, flights=_last_in_flight(workload), has_first=False, has_last=True
    )
    return max(first, last, key=lambda rank: rank.allocated)


def in_flight(workload: Workload) -> float:
    """Micro batches whose activations the first stage keeps.

    1F1B: as many as stages; interleaved: x (1 + (p-1)/(p v)) (arXiv:2205.05198, section 4.2.3); GPipe: all.
    """
    layout, count = workload.layout, workload.micro_batches
    if layout.schedule == "gpipe":
        return float(count)
    extra = (layout.pipeline - 1) / (layout.pipeline * layout.virtual) if layout.virtual > 1 else 0.0
    return min(count, layout.pipeline * (1 + extra))


def _last_in_flight(workload: Workload) -> float:
    """The last stage turns each micro batch around at once, after ((v-1) p + 1) chunks of 1/v where interleaved."""
    layout, count = workload.layout, workload.micro_batches
    if layout.schedule == "gpipe":
        return float(count)
    return min(count, ((layout.virtual - 1) * layout.pipeline + 1) / layout.virtual)


def _rank(workload: Workload, name: str, *, layers: int, flights: float, has_first: bool, has_last: bool) -> Rank:
    local = local_parameters(workload, layers=layers, has_first=has_first, has_last=has_last)
    recomputes = workload.recompute not in ("none", "selective")
    working = layer_bytes(workload) - boundary_bytes(workload) if recomputes else 0.0
    kept = kept_bytes(workload) * layers * flights
    if workload.layout.offload_activations and workload.recompute == "full":
        kept = 2 * boundary_bytes(workload)
    if workload.stack.name in ("megatron-deepspeed", "deepspeed") and workload.layout.pipeline > 1:
        kept += boundary_bytes(workload) * flights  # DeepSpeed's pipe buffers keep each stage's outputs too
    return Rank(
        name=name,
        states=states(workload, local),
        activations=kept + (tail_bytes(workload) if has_last else 0.0),
        working=max(0.0, working),
        logits=logit_bytes(workload) if has_last else 0.0,
    )


def logit_bytes(workload: Workload) -> float:
    """Logits, their fp32 copy, log-probabilities and gradient, at the moment the loss turns around.

    Eager: 16-bit logits, fp32 copy, log-probabilities, fp32 gradient, 16-bit gradient. Compiled: without the last.
    Megatron casts and overwrites in place: logits, fp32 softmax, gradient.
    """
    size, logits = width(workload), workload.tokens * workload.shape.vocab / workload.layout.tensor
    if workload.stack.name in ("ddp", "fsdp", "deepspeed"):
        # in pieces: 16-bit logits, fp32 copy, log-probabilities and gradient of one piece at a time
        return min(logits, max(PIECE_LOGITS, workload.shape.vocab)) * (size + 12)
    if workload.stack.family == "megatron":
        return logits * (size + 4 + 4)
    if workload.is_compiled:
        return logits * (size + 2.5 if workload.stack.release >= FUSED_LOSS_RELEASE else size + 12)
    shifted = 4 if workload.stack.name == "autocast" else 0  # transformers copies logits to shift them
    return logits * (2 * size + 12 + shifted)


def host_bytes(workload: Workload) -> float:
    """Host memory of one rank: offloaded state with its pinned copies."""
    layout = workload.layout
    if not (layout.offload_optimizer or layout.offload_parameters):
        return 0.0
    local = local_parameters(workload, layers=fullest_layers(workload), has_first=True, has_last=layout.pipeline == 1)
    per_parameter = 16 * layout.offload_optimizer + 2 * layout.offload_parameters
    return HOST_COPIES * per_parameter * local.all / min(layout.shard_group, layout.replicas)


def _rounding(workload: Workload, rank: Rank) -> float:
    """States are a few large blocks allocated once; what comes and goes leaves gaps.

    Before 2023 (torch 1.9 to 1.11) everything did. Both shares are fitted (tests/published/fit.py).
    """
    if workload.hardware.accelerator.architecture == "cpu":
        return 0.0
    if workload.stack.release < OLD_ALLOCATOR:
        return MEMORY["old_fragmentation"] * rank.allocated
    return MEMORY["fragmentation"] * (rank.allocated - sum(rank.states) + rank.states.gathered)


def _lines(workload: Workload, rank: Rank) -> tuple[Line, ...]:
    """Every cause with its bytes, in the order a person reads them."""
    zero, korthikanti = "arXiv:1910.02054, section 3.1", "arXiv:2205.05198, section 4"
    counted = "tests/plan/test_saved_activations.py" if is_eager(workload) else korthikanti
    held, layout = rank.states, workload.layout
    where = f" (ZeRO-{layout.zero_stage} over {layout.shard_group})" if layout.zero_stage else ""
    rows = (
        ("parameters", held.parameters, zero),
        ("gradients", held.gradients, zero),
        (f"optimizer state{where}", held.optimizer, zero),
        ("gathered layers and copies", held.gathered, "FSDP prefetch; autocast copies"),
        ("communication buffers", held.buffers, "DeepSpeed bucket sizes"),
        (f"activations ({workload.recompute} recomputed)", rank.activations, counted),
        ("layer at work", rank.working if rank.working > rank.logits else 0.0, counted),
        ("logits and loss", rank.logits if rank.logits >= rank.working else 0.0, "fp32 copy, log-probabilities"),
        ("rounding and fragments", _rounding(workload, rank), "fitted share of what comes and goes"),
        ("CUDA context and NCCL", context_bytes(workload), "BLOOM chronicles"),
    )
    return tuple(Line(name=name, bytes=ceil(count), source=source) for name, count, source in rows if count >= 1)
