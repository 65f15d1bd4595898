"""What devices really do: measured rates of matrix products, attention, memory and links. Physics, not software.

Sources: the microbenchmarks of Azure's AI benchmarking guide (``tests/published/azure_gemm.csv``,
``azure_hbm_attn.csv``, ``azure_nccl_allreduce.csv``) and of stas00/ml-engineering (``mamf.csv``). ``tests/published/
fit.py --rates`` fits the few numbers of ``MatrixRate`` to the first of them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.catalog.accelerator import Accelerator

TILE = 128
"""Matrix products are computed in tiles of at least 128 x 128; a ragged edge costs a whole tile."""


@dataclass(frozen=True, kw_only=True)
class MatrixRate:
    """Seconds of an m x n x k product: operations / (peak x large) x (1 + k0/k)(1 + n0/n)(1 + n0/m) + start."""

    large: float
    """Share of the dense peak that large products reach."""
    k0: float
    n0: float
    start_seconds: float
    """Launch, prologue and tail of one product."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The measured rates of one accelerator."""

    peak: float
    """Dense bf16 (else fp16, else fp32) peak, FLOP/s: attention runs in it whatever the products do."""
    memory: float
    """Sustained device-memory bandwidth, bytes/s."""
    family: str
    """``cpu, volta, ampere, hopper, blackwell``: which software constants apply."""


_CURVE = {
    "ampere": {"k0": 185.0, "n0": 0.0, "start_seconds": 9.2e-6},
    "hopper": {"k0": 145.0, "n0": 46.0, "start_seconds": 5.9e-6},
    "blackwell": {"k0": 0.0, "n0": 77.0, "start_seconds": 5.1e-6},
}
"""Fitted to azure_gemm.csv (A100 fp16; H100 and H200 fp8; GB200 fp8): median error 4 %, worst 15 %."""

_LARGE = {
    # azure_gemm.csv, the 16384 and 32768 cubes.
    ("A100", "16"): 0.821,
    ("H100", "8"): 0.706,
    ("H200", "8"): 0.698,
    ("GB200", "8"): 0.581,
    # mamf.csv: the best product found, of H100 SXM, B200, B300, GB200.
    ("H100", "16"): 0.803,
    ("H200", "16"): 0.803,
    ("B200", "16"): 0.776,
    ("B300", "16"): 0.786,
    ("GB200", "16"): 0.729,
    # Azure/ai-infrastructure-on-azure sku_performance_baseline: 1850 of 2500 TFLOP/s.
    ("GB300", "16"): 0.740,
    # Not measured apart: the silicon of GB200, whose fp8 products reach 2.9 PFLOP/s.
    ("B200", "8"): 0.646,
    ("B300", "8"): 0.646,
    ("GB300", "8"): 0.581,
}

_MEMORY = {"ampere": 0.834, "hopper": 0.880, "blackwell": 0.919}
"""Share of peak of the STREAM triad (azure_hbm_attn.csv): A100 1.70, H100 2.97, H200 4.15, GB200 7.35 TB/s."""

FLASH2_FORWARD = {"ampere": 0.575, "hopper": 0.331, "blackwell": 0.150}
"""Share of the bf16 peak of FlashAttention 2, forward, 8k tokens (azure_hbm_attn.csv; A100 at head width 64)."""

_UNMEASURED = {"large": 0.55, "k0": 150.0, "n0": 50.0, "start_seconds": 6e-6}
"""For devices nobody published a curve of (V100, T4, A10, MI300X): assumed, and the plan says so."""

MEASURED = ("ampere", "hopper", "blackwell")


@cache
def rates(device: Accelerator) -> Rates:
    """The rates of ``device``."""
    peak = device.peak_flops("bf16") or device.peak_flops("fp16") or device.peak_flops("fp32") or 1e12
    bandwidth = (device.memory_gb_s or 500.0) * 1e9
    return Rates(peak=peak, memory=bandwidth * _MEMORY.get(device.architecture, 0.8), family=device.architecture)


@cache
def matrix_rate(device: Accelerator, bits: str) -> MatrixRate:
    """The curve of products of ``bits`` ("32", "16", "8", "4") on ``device``."""
    if device.architecture == "cpu":
        return MatrixRate(large=0.7, k0=16.0, n0=8.0, start_seconds=10e-6)
    name = device.name.split("-")[0]
    large = _LARGE.get((name, bits)) or _LARGE.get((name, "8" if bits == "4" else "16"))
    if large is None:
        return MatrixRate(**_UNMEASURED)
    return MatrixRate(large=large, **_CURVE[device.architecture])


def product_seconds(rate: MatrixRate, peak: float, m: float, n: float, k: float) -> float:
    """Seconds of one m x n x k product at ``peak`` FLOP/s (what the device sustains of it is in ``rate``)."""
    padded = ceil(m / TILE) * ceil(n / TILE) * TILE * TILE
    shape = (1 + rate.k0 / k) * (1 + rate.n0 / n) * (1 + rate.n0 / m)
    return 2 * padded * k / (peak * rate.large) * shape + rate.start_seconds


_ALL_REDUCE = {
    # azure_nccl_allreduce.csv: bus bandwidth, GB/s, at 1, 2, 4, ... 8192 MiB; 8 GPUs (4 on GB200) of one VM.
    "ampere": (36.2, 53.5, 71.4, 90.0, 109.2, 132.8, 166.6, 174.2, 213.9, 221.6, 228.1, 230.2, 230.5, 231.6),
    "hopper": (48.3, 85.4, 133.6, 177.0, 237.4, 298.2, 364.9, 406.5, 427.8, 440.6, 467.0, 472.5, 476.5, 479.4),
    "blackwell": (80.5, 110.4, 146.3, 253.5, 331.1, 422.6, 550.7, 574.2, 593.5, 618.7, 646.9, 666.6, 673.1, 679.6),
}
"""Hopper is the mean of ND_H100_v5 and ND_H200_v5."""
_LINK = {"ampere": 300e9, "hopper": 450e9, "blackwell": 900e9}
"""One-way NVLink bandwidth those curves were measured over, bytes/s."""


def link_share(family: str, size: float) -> float:
    """Bus bandwidth of a collective of ``size`` bytes inside an island, as a share of the one-way link bandwidth.

    Below 1 MiB bandwidth falls in proportion to size (latency bound).
    """
    curve = _ALL_REDUCE.get(family, _ALL_REDUCE["ampere"])
    place = log(max(size, 1.0) / 2**20, 2)
    link = _LINK.get(family, 300e9)
    if place <= 0:
        return float(curve[0] * 1e9 / link * 2**place)
    below = min(int(place), len(curve) - 2)
    share = min(place - below, 1.0)
    return float((curve[below] * (1 - share) + curve[below + 1] * share) * 1e9 / link)


NETWORK_SHARE = 0.92
"""Of the adapters' line rate: 188 GB/s of 8 x 25 over two ND A100 v4 nodes (Azure/azureml-examples gpu_perf), and
azurehpc-health-checks' pass line of 180 of 200 Gb/s."""
ETHERNET_SHARE = 0.7
"""Of the line rate, over sockets: assumed."""
