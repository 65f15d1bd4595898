"""Expected wall time with failures: how often a cluster breaks, how often to save, what share of time is work.

Failure rate: 419 unexpected interruptions in 54 days on 16,384 H100 GPUs (Llama 3 herd, arXiv:2407.21783,
section 3.3.4), one per 50,700 GPU-hours. Interval between checkpoints: sqrt(2 x save x mean time to failure)
(Young, CACM 17(9), 1974; Daly, FGCS 22(3), 2006).
"""

from __future__ import annotations

import math

from launcher.plan.plan import Goodput

GPU_HOURS_PER_FAILURE = 54 * 24 * 16_384 / 419
RESTART_SECONDS = 900.0
"""Assumed: find the fault, take a node, pull the image, rendezvous, load the checkpoint."""
SAVE_BYTES_PER_SECOND_PER_NODE = 1.5e9
"""Assumed: half of the 24 Gb/s one node gets from a storage account (how-to-read-write-data-v2.md)."""
STORE_BYTES_PER_SECOND = 15e9
"""Default egress of one storage account, 120 Gb/s (same page); assumed for writing too."""


def make_goodput(*, ranks: int, nodes: int, checkpoint_bytes: int, step_seconds: float) -> Goodput:
    """Goodput of ``ranks`` GPUs on ``nodes`` nodes that save ``checkpoint_bytes`` at the best interval.

    Lost per second of work: saving, half an interval and a restart per failure (Daly's first order).
    """
    to_failure = GPU_HOURS_PER_FAILURE * 3600 / ranks
    save = checkpoint_bytes / min(nodes * SAVE_BYTES_PER_SECOND_PER_NODE, STORE_BYTES_PER_SECOND)
    interval = math.sqrt(2 * save * to_failure)
    lost = save / interval + (interval / 2 + RESTART_SECONDS) / to_failure
    return Goodput(
        mean_hours_to_failure=to_failure / 3600,
        save_seconds=save,
        interval_seconds=interval,
        interval_steps=max(1, round(interval / step_seconds)),
        efficiency=1 / (1 + lost),
    )
