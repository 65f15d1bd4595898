"""The matrix products of one layer, forward and backward, and how long they take."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from launcher.plan.rates import matrix_rate, product_seconds, rates

if TYPE_CHECKING:
    from launcher.plan.calibration import Calibration
    from launcher.plan.rates import MatrixRate
    from launcher.plan.workload import Workload

REFERENCE_WATTS = {"ampere": 400, "hopper": 700, "blackwell": 1000}
_GRACE_WATTS = 1200
"""GB200; the HGX boards of B200 allow 1000."""


class Product(NamedTuple):
    """An m x k by k x n product: ``m`` tokens, ``k`` in, ``n`` out."""

    m: float
    n: float
    k: float


class Pair(NamedTuple):
    """Seconds forward and backward."""

    forward: float
    backward: float


ZERO = Pair(0.0, 0.0)


class Engine(NamedTuple):
    """Matrix units of the device in one precision."""

    rate: MatrixRate
    flops: float
    """Peak that a long run sustains, FLOP/s; ``rate`` holds what of it shapes allow."""

    def seconds(self, m: float, n: float, k: float) -> float:
        """One product."""
        return product_seconds(self.rate, self.flops, m, n, k)


def bits_of(precision: str) -> str:
    """Width of the operands: "32", "16", "8" or "4"."""
    if "fp4" in precision:
        return "4"
    return "8" if "fp8" in precision else "32" if precision == "fp32" else "16"


def engine_of(workload: Workload, bits: str, constants: Calibration) -> Engine:
    """The matrix units for operands of ``bits``, at the clocks a long run leaves."""
    device = workload.hardware.accelerator
    peak = device.peak_flops({"32": "fp32", "16": "bf16", "8": "fp8", "4": "nvfp4"}[bits]) or rates(device).peak
    return Engine(matrix_rate(device, bits), peak * _sustained(workload, bits, constants) * power(workload, constants))


def power(workload: Workload, constants: Calibration) -> float:
    """Speed that the power limit leaves, against the reference board of the architecture."""
    device = workload.hardware.accelerator
    reference = _GRACE_WATTS if device.name.startswith("GB") else REFERENCE_WATTS.get(device.architecture)
    if device.watts is None or reference is None:
        return 1.0
    return float((device.watts / reference) ** constants.power_exponent)


def _sustained(workload: Workload, bits: str, constants: Calibration) -> float:
    match workload.hardware.accelerator.architecture:
        case "hopper":
            is_rowwise = workload.precision == "fp8-row" and bits == "8"
            return constants.sustained_hopper * (constants.fp8_rowwise_share if is_rowwise else 1.0)
        case "blackwell" if bits == "4":
            return constants.sustained_blackwell * constants.nvfp4_share
        case "blackwell":
            return constants.sustained_blackwell_fp8 if bits == "8" else constants.sustained_blackwell
        case "ampere":
            return constants.sustained_ampere
        case _:
            return 1.0


def pair(engine: Engine, products: list[Product], *, trains_weights: bool = True) -> Pair:
    """Forward, and backward: gradients of inputs, and of weights unless they are frozen."""
    forward = backward = 0.0
    for m, n, k in products:
        forward += engine.seconds(m, n, k)
        backward += engine.seconds(m, k, n)
        if trains_weights:
            backward += engine.seconds(n, k, m)
    return Pair(forward, backward)


def attention_products(workload: Workload) -> list[Product]:
    """Projections into and out of attention."""
    shape, tokens, tensor = workload.shape, workload.tokens, workload.layout.tensor
    hidden, width = shape.hidden, shape.heads * shape.head_dim / tensor
    if shape.kv_rank:
        rotary = shape.heads * (shape.head_dim + shape.rope_dim) / tensor
        return [
            Product(tokens, shape.query_rank, hidden),
            Product(tokens, rotary, shape.query_rank),
            Product(tokens, shape.kv_rank + shape.rope_dim, hidden),
            Product(tokens, 2 * width, shape.kv_rank),
            Product(tokens, hidden, width),
        ]
    joined = (shape.heads + 2 * shape.kv_heads) * shape.head_dim / tensor
    return [Product(tokens, joined, hidden), Product(tokens, hidden, width)]


def feed_forward_products(workload: Workload, width: int) -> list[Product]:
    """A feed-forward block of ``width``, its gate joined with the up projection."""
    shape, tokens, tensor = workload.shape, workload.tokens, workload.layout.tensor
    return [
        Product(tokens, (2 if shape.is_gated else 1) * width / tensor, shape.hidden),
        Product(tokens, shape.hidden, width / tensor),
    ]


def quantise_seconds(workload: Workload, products: list[Product], constants: Calibration, memory: float) -> Pair:
    """Casting operands to 8 or 4 bits: read 2 bytes and write 2 (row- and column-major) an element.

    Weights are cast once a step. With sequence parallelism, the residual stream is cast before it is gathered.
    """
    bits, precision = bits_of(workload.precision), workload.precision
    if bits not in ("8", "4"):
        return ZERO
    tensor_scaled = precision in ("fp8", "fp8-row")
    traffic = constants.quantise_tensor if tensor_scaled else constants.quantise_block
    traffic = 4 * (constants.quantise_nvfp4 if bits == "4" else traffic) / memory
    layout, hidden = workload.layout, workload.shape.hidden
    shards = layout.tensor if layout.has_sequence_parallel else 1
    forward = backward = 0.0
    for m, n, k in products:
        forward += m * (k / shards if k == hidden else k) + n * k / workload.micro_batches
        backward += m * (n / shards if n == hidden else n)
    return Pair(traffic * forward, traffic * backward)
