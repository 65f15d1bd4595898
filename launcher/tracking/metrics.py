"""Names of the metrics, with units: one list for who writes and who reads.

``training/`` writes one row per logged step to the spool (``metrics.jsonl``: ``{"step": int, "time": unix seconds,
"metrics": {name: float}}``); MLflow and ``launcher report`` read the same names.
"""

from __future__ import annotations

LOSS = "loss"
"""Mean cross-entropy over the global batch, nats per token."""
EVALUATION_LOSS = "evaluation_loss"
"""Mean cross-entropy over held-out batches, nats per token."""
LEARNING_RATE = "learning_rate"
GRADIENT_NORM = "gradient_norm"
"""Global L2 norm before clipping."""
STEP_SECONDS = "step_seconds"
"""Wall time of one optimizer step, without evaluation and checkpoint."""
DATA_SECONDS = "data_seconds"
"""Part of the step spent waiting for data."""
COMPUTE_SECONDS = "compute_seconds"
CHECKPOINT_SECONDS = "checkpoint_seconds"
"""Blocking part of a save."""
EVALUATION_SECONDS = "evaluation_seconds"
TOKENS_PER_SECOND = "tokens_per_second"
TOKENS_PER_SECOND_PER_GPU = "tokens_per_second_per_gpu"
TOKENS_SEEN = "tokens_seen"
MFU = "mfu"
"""Model FLOPs utilisation, 0..1, against the catalogue's dense peak."""
PEAK_MEMORY_BYTES = "peak_memory_bytes"
"""Largest device memory held by one rank so far (CPU: resident set)."""
LIBRARY_MEMORY_BYTES = "library_memory_bytes"
"""Of the peak on a CPU, what was resident before the model was built: Python, torch and other libraries."""
EXPERT_LOAD = "expert_load"
"""Tokens of the busiest expert over an even share, at most over layers and micro batches, mean over ranks."""
DOLLARS = "dollars"
"""Billed so far, by the plan's price."""
