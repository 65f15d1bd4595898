"""Which layers each pipeline stage holds, and how long a step of micro batches takes to flow through."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from launcher.plan.links import Links
    from launcher.plan.profile import Profile
    from launcher.plan.workload import Workload

HANDSHAKE_SECONDS = 20e-6
"""One send and receive besides its bytes."""
SCHEDULE_BUBBLE = {"gpipe": 1.0, "1f1b": 1.0, "interleaved": 1.0, "zero_bubble": 1 / 3}
"""Idle time of fill and drain against 1F1B's (Qi et al., arXiv:2401.10241: ZB-H1 leaves a third)."""


class Stages(NamedTuple):
    """Layers of the fullest stage and of the last one, which also has the head."""

    middle: int
    last: int


class Flow(NamedTuple):
    """Seconds of all micro batches of a step."""

    busy: float
    """The slowest stage's own work."""
    bubble: float
    transfers: float
    slowest: float
    """Of one micro batch on the slowest stage."""


def stages(workload: Workload, profile: Profile) -> Stages:
    """How the layers are cut; embedding and head count as a layer each where the layers do not divide evenly.

    Megatron-DeepSpeed's ``type:transformer|embedding`` and Megatron-Core's ``account_for_embedding_in_pipeline_split``
    do so; the BLOOM tables use the former wherever it divides evenly.
    """
    layers, layout = workload.shape.layers, workload.layout
    pipeline, virtual = layout.pipeline, layout.virtual
    if pipeline == 1:
        return Stages(layers, layers)
    is_old = profile.kind == "old-megatron"
    whole = layers % pipeline == 0 and (layers + 2) % pipeline != 0 if is_old else layers % (pipeline * virtual) == 0
    if whole:
        return Stages(layers // pipeline, layers // pipeline)
    units = ceil((layers + 2) / (pipeline * virtual)) * virtual
    return Stages(units, units - 1)


def flow(workload: Workload, profile: Profile, links: Links, *, layer: float, head: float) -> Flow:
    """The step's compute: m micro batches through the slowest stage, and the others' fill and drain.

    1F1B: (m - 1) x slowest + one pass through all stages; interleaving divides fill and drain by the virtual stages
    (Narayanan et al., arXiv:2104.04473, section 2.2).
    """
    layout, count = workload.layout, workload.micro_batches
    everything = workload.shape.layers * layer + head
    if layout.pipeline == 1:
        return Flow(count * everything, 0.0, 0.0, everything)
    cut = stages(workload, profile)
    slowest = max(cut.middle * layer, cut.last * layer + head)
    fill = (everything - slowest) / layout.virtual * SCHEDULE_BUBBLE[layout.schedule]
    if layout.schedule == "gpipe":
        fill = max(fill, everything - slowest)
    return Flow(count * slowest, max(0.0, fill), _transfers(workload, profile, links), slowest)


def _transfers(workload: Workload, profile: Profile, links: Links) -> float:
    """Activations between stages: hidden beside compute by modern Megatron but for the first and last of a step."""
    layout, hidden = workload.layout, workload.shape.hidden
    is_scattered = layout.has_sequence_parallel or profile.kind != "fsdp"
    size = 2 * workload.tokens * hidden / (layout.tensor if is_scattered else 1)
    crosses = not links.is_inside(layout.world) and layout.world > workload.hardware.gpus_per_node
    once = size / links.point_to_point(crosses_nodes=crosses) + HANDSHAKE_SECONDS
    exposed = 0.0 if profile.hides_pipeline else 2 * layout.virtual * workload.micro_batches
    return once * (exposed + 2 * (layout.pipeline - 1))
