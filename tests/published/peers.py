"""Our errors beside those of other planners, on the rows of this folder that each of them can take.

    python tests/published/peers.py

What others scored is written down below, with where it comes from: this script does not run their tools. The one peer
that is a formula (model FLOPs over a fixed MFU) is computed, with the MFU that suits the rows best.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from launcher.cli.measurements import measurements
from launcher.plan.audit import compare
from launcher.plan.calibration import shipped
from launcher.plan.flops import model_flops_per_token
from launcher.plan.rates import rates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from launcher.plan.published_row import PublishedRow

HERE = Path(__file__).parent
RERUN = "run on the rows it can take when these tables were collected"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another planner: what it can take, and what it scored there."""

    name: str
    score: str
    """Median error, percent, or a range over variants."""
    source: str
    takes: Callable[[PublishedRow], bool]
    is_of_memory: bool = False


def is_plain(row: PublishedRow) -> bool:
    """Dense, and no context parallelism."""
    return not row.workload.shape.is_moe and row.workload.layout.context == 1 and row.step_seconds is not None


def is_calculons(row: PublishedRow) -> bool:
    """Calculon knows Megatron's GPT alone: no gates, no shared key/value heads, no fused attention, no ZeRO-3."""
    work = row.workload
    is_gpt = not work.shape.is_gated and work.shape.kv_heads == work.shape.heads and not work.has_flash
    return is_plain(row) and is_gpt and work.stack.family == "megatron" and work.layout.zero_stage < 3


def has_megatrons_memory(row: PublishedRow) -> bool:
    """Megatron's formula covers Megatron."""
    return row.memory_gib is not None and row.workload.stack.family == "megatron"


def has_zeros_memory(row: PublishedRow) -> bool:
    """DeepSpeed's estimators cover what it shards."""
    return row.memory_gib is not None and row.workload.stack.family == "deepspeed"


PEERS = (
    Peer(
        name="calculon, on its home table (Korthikanti)",
        score="2.8",
        source="calculon/llm/validation.py (github calculon-ai/calculon)",
        takes=lambda row: row.table == "korthikanti2022_t5",
    ),
    Peer(name="calculon", score="27", source=RERUN, takes=is_calculons),
    Peer(name="llm-analysis", score="16-24", source=RERUN, takes=is_plain),
    Peer(name="fixed-MFU calculators", score="15-24", source=RERUN, takes=is_plain),
    Peer(
        name="Megatron's report_theoretical_memory",
        score="12-15",
        source=RERUN,
        takes=has_megatrons_memory,
        is_of_memory=True,
    ),
    Peer(
        name="DeepSpeed's estimators (states alone)",
        score="62-78",
        source=RERUN,
        takes=has_zeros_memory,
        is_of_memory=True,
    ),
)


def ours(rows: Sequence[PublishedRow], *, is_of_memory: bool) -> float:
    """Our median error on ``rows``, percent of what was measured."""
    compared = [compare(row, shipped()) for row in rows]
    if is_of_memory:
        return 100 * median(abs(row.predicted_memory_gib / (row.measured_memory_gib or 1) - 1) for row in compared)
    return 100 * median(abs(row.predicted_step_seconds / (row.measured_step_seconds or 1) - 1) for row in compared)


def fixed_mfu(rows: Sequence[PublishedRow]) -> tuple[float, float]:
    """The one MFU that suits ``rows`` best, and the median error it leaves, percent."""
    reached = [_mfu(row) for row in rows]
    best = min((share / 1000 for share in range(100, 900, 5)), key=lambda share: _error(reached, share))
    return best, 100 * _error(reached, best)


def _mfu(row: PublishedRow) -> float:
    work = row.workload
    flops = model_flops_per_token(work.shape, work.seq) * work.global_batch * work.seq
    peak = work.hardware.accelerator.peak_flops(work.precision) or rates(work.hardware.accelerator).peak
    return flops / (row.step_seconds or 1) / work.layout.world / peak


def _error(reached: Sequence[float], share: float) -> float:
    return median(abs(mfu / share - 1) for mfu in reached)


def main() -> None:
    """Print the table."""
    rows, _ = measurements([str(path) for path in sorted(HERE.glob("*.csv"))])
    print(f"{'median error, %':44s}{'rows':>6s}{'theirs':>9s}{'ours':>7s}   theirs from")
    for peer in PEERS:
        members = [row for row in rows if peer.takes(row)]
        score = ours(members, is_of_memory=peer.is_of_memory)
        print(f"{peer.name:44s}{len(members):6d}{peer.score:>9s}{score:7.1f}   {peer.source}")
    members = [row for row in rows if is_plain(row)]
    share, error = fixed_mfu(members)
    name = f"model FLOPs at a fixed MFU of {share:.1%}"
    print(f"{name:44s}{len(members):6d}{error:9.1f}{ours(members, is_of_memory=False):7.1f}   computed here")


if __name__ == "__main__":
    main()
