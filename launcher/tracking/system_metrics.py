"""How busy a node is: processor, memory, disk, network, and GPUs where NVIDIA's library can be asked.

One sampler per node. Names are ``system/NODE/...``, MLflow's own with the node in front; GPU figures are over all GPUs
of a node, because a service that takes fifty metric names a run (Azure ML) has no room for eight GPUs a node.
"""

from __future__ import annotations

from typing import Any

MEGABYTE = 1_000_000


class Sampler:
    """Samples the machine it runs on. What cannot be asked for is left out."""

    def __init__(self, node: int) -> None:
        """``node``: 0-based, as in the plan's topology."""
        self._prefix = f"system/{node}/"
        self._psutil = _psutil()
        self._nvml = _nvml()
        self._traffic_before = (0.0, 0.0)
        self.sample()  # processor and network figures are since the sample before

    def sample(self) -> dict[str, float]:
        """The node's figures now; percentages are 0..100, network figures are since the sample before."""
        return {self._prefix + name: value for name, value in (self._machine() | self._all_gpus()).items()}

    def _machine(self) -> dict[str, float]:
        if self._psutil is None:
            return {}
        memory, traffic = self._psutil.virtual_memory(), self._psutil.net_io_counters()
        now = (traffic.bytes_recv / MEGABYTE, traffic.bytes_sent / MEGABYTE) if traffic else (0.0, 0.0)
        received, sent = (after - before for after, before in zip(now, self._traffic_before, strict=True))
        self._traffic_before = now
        return {
            "cpu_utilization_percentage": self._psutil.cpu_percent(),
            "system_memory_usage_percentage": memory.percent,
            "system_memory_usage_megabytes": memory.used / MEGABYTE,
            "disk_usage_percentage": self._psutil.disk_usage("/").percent,
            "network_receive_megabytes": received,
            "network_transmit_megabytes": sent,
        }

    def _all_gpus(self) -> dict[str, float]:
        if self._nvml is None:
            return {}
        try:
            return _gpu_figures(self._nvml)
        except self._nvml.NVMLError:  # a lost GPU, or one that does not measure
            return {}


def _gpu_figures(nvml: Any) -> dict[str, float]:
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    use = [nvml.nvmlDeviceGetUtilizationRates(handle).gpu for handle in handles]
    memory = [nvml.nvmlDeviceGetMemoryInfo(handle) for handle in handles]
    return {
        "gpu_utilization_percentage": sum(use) / len(use),
        "gpu_utilization_percentage_lowest": min(use),
        "gpu_memory_usage_percentage_highest": max(100 * gpu.used / gpu.total for gpu in memory),
        "gpu_power_usage_watts": sum(nvml.nvmlDeviceGetPowerUsage(handle) for handle in handles) / 1000,
    }


def _psutil() -> Any:
    try:
        import psutil
    except ModuleNotFoundError:
        return None
    return psutil


def _nvml() -> Any:
    """NVIDIA's library, initialised; None without the package, the driver or a GPU."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml if pynvml.nvmlDeviceGetCount() else None
    except pynvml.NVMLError:
        return None
