"""What one accelerator is: memory, dense peaks, bandwidth, power; with the source of the row."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One GPU (or one CPU rank). Peaks are dense (no 2:4 sparsity); ``None`` is unknown or not supported."""

    name: str
    architecture: str
    """``volta, turing, ampere, hopper, blackwell, cdna3, cpu``: which measured efficiency curves apply."""
    memory_gb: float | None
    """On the name plate; None for a CPU rank, which shares the machine's."""
    usable_gib: float | None
    """What a process can allocate before it is refused, GiB."""
    fp32_tflops: float | None
    fp16_tflops: float | None
    bf16_tflops: float | None
    fp8_tflops: float | None
    fp4_tflops: float | None
    memory_gb_s: float | None
    """Peak device-memory bandwidth, GB/s."""
    watts: float | None
    """Thermal design power of the module."""
    source: str
    aliases: tuple[str, ...] = ()

    def peak_flops(self, precision: str) -> float | None:
        """Dense peak of matrix products in ``precision`` (fp32, bf16, fp16, fp8, mxfp8, nvfp4), FLOP/s."""
        kind = "fp8" if "fp8" in precision else "fp4" if "fp4" in precision else precision
        tflops: float | None = getattr(self, f"{kind}_tflops")
        return None if tflops is None else tflops * 1e12
