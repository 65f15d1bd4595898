from __future__ import annotations

import psutil

from launcher.tracking import metrics
from launcher.tracking.follower import AZURE_SAMPLED_NODES
from launcher.tracking.system_metrics import Sampler

AZURE_METRIC_NAMES = 50
"""A run (Azure Machine Learning, "Manage resources and quotas")."""
TRAINING_METRICS = sum(name.isupper() for name in vars(metrics))
WITH_GPUS = 10
"""Six of the machine, four of its GPUs."""


def test_a_sample_is_what_the_operating_system_says() -> None:
    sample = Sampler(3).sample()

    assert set(sample) >= {f"system/3/{name}" for name in ("cpu_utilization_percentage", "network_receive_megabytes")}
    used = psutil.virtual_memory().percent
    assert abs(sample["system/3/system_memory_usage_percentage"] - used) < 20
    assert 0 <= sample["system/3/cpu_utilization_percentage"] <= 100
    assert sample["system/3/network_receive_megabytes"] >= 0


def test_the_nodes_sampled_on_azure_ml_leave_room_for_the_metrics_of_training() -> None:
    assert TRAINING_METRICS + AZURE_SAMPLED_NODES * WITH_GPUS <= AZURE_METRIC_NAMES
