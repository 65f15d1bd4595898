"""The plan of a recipe and its parts: what follows before a cent is spent.

Values only; the arithmetic lives in the modules beside this one. All bytes are bytes (not GiB), all times seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["fits", "tight", "does_not_fit", "unknown"]
Level = Literal["error", "warning", "note", "hint"]
Calibration = Literal["inside", "outside"]


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Which rank sits where: ``world = tensor x pipeline x context x data``.

    Rank order, fastest first: tensor, context, data, pipeline (Megatron-Core's ``tp-cp-dp-pp``), so
    tensor-parallel ranks are neighbours inside a node.
    """

    nodes: int
    processes_per_node: int
    world_size: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    virtual_pipeline_parallel_size: int
    context_parallel_size: int
    expert_parallel_size: int
    data_parallel_size: int
    shard_group_size: int
    """Ranks that share one copy of ZeRO-sharded state (data x context ranks, or fewer under HSDP)."""
    equation: str
    """``tensor 8 x pipeline 8 x context 1 x data 16 = 1024``."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one rank sits: its node, its local rank, and its coordinate on each axis."""

    rank: int
    node: int
    local_rank: int
    tensor: int
    context: int
    data: int
    pipeline: int


def place(topology: Topology, rank: int) -> Place:
    """The place of ``rank`` (0-based) in ``topology``'s rank order."""
    rest, tensor = divmod(rank, topology.tensor_parallel_size)
    rest, context = divmod(rest, topology.context_parallel_size)
    pipeline, data = divmod(rest, topology.data_parallel_size)
    node, local_rank = divmod(rank, topology.processes_per_node)
    return Place(
        rank=rank, node=node, local_rank=local_rank, tensor=tensor, context=context, data=data, pipeline=pipeline
    )


@dataclass(frozen=True, kw_only=True)
class Batch:
    """How many sequences one optimizer step sees: ``global = micro x data x accumulation``."""

    global_batch_size: int
    micro_batch_size: int
    gradient_accumulation_steps: int
    tokens_per_step: int
    train_steps: int
    train_tokens: int
    equation: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """A named part of the memory of one GPU."""

    name: str
    bytes: int
    source: str = ""
    """Where the formula comes from."""


@dataclass(frozen=True, kw_only=True)
class ParameterLine:
    """A named part of the model's parameters."""

    name: str
    parameters: int


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Peak bytes on the fullest GPU, a line per cause."""

    bytes_per_gpu: int
    low_bytes: int
    high_bytes: int
    usable_bytes: int | None
    """What the device offers; None when unknown (then the verdict is ``unknown``)."""
    verdict: Verdict
    worst: str
    """Which rank is fullest: ``stage 0``, ``every rank``."""
    host_bytes_per_node: int
    """Host memory of one node: offloaded state and staging."""
    lines: tuple[Line, ...]
    start_bytes: int = 0
    """Peak before the first step, where an engine copies its state then; 0 where it does not."""


@dataclass(frozen=True, kw_only=True)
class TimeLine:
    """A named part of one optimizer step."""

    name: str
    seconds: float
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """One optimizer step, and the whole run."""

    step_seconds: float
    low_seconds: float
    high_seconds: float
    tokens_per_second: float
    tokens_per_second_per_gpu: float
    mfu: float | None
    """Model FLOPs (no recompute) over dense peak, 0..1; None when the peak is unknown."""
    hfu: float | None
    """Hardware FLOPs (with recompute) over dense peak, 0..1."""
    flops_per_token: float
    """Model FLOPs per token, forward and backward."""
    hours: float
    """Running time to the last step, without failures."""
    expected_hours: float
    """With failures, restarts and checkpoints."""
    lines: tuple[TimeLine, ...]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What the run is billed, and from which price."""

    dollars: float | None
    """None when the price is unknown."""
    dollars_per_hour: float | None
    """Of the whole cluster."""
    spot_dollars: float | None
    price_dollars_per_hour: float | None
    """Of one VM."""
    price_date: str | None
    price_region: str | None
    price_source: str | None


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Electricity and what it emits."""

    kilowatt_hours: float | None
    carbon_kilograms: float | None
    assumption: str


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Checkpoints at rest."""

    bytes_per_checkpoint: int
    bytes_kept: int
    dollars_per_month: float | None = None
    """Of what is kept, at rest."""


@dataclass(frozen=True, kw_only=True)
class Goodput:
    """What failures cost, and how often to save."""

    mean_hours_to_failure: float
    """Of the whole cluster."""
    save_seconds: float
    interval_seconds: float
    """Between checkpoints, the one that loses least (Young, Daly)."""
    interval_steps: int
    """The same in optimizer steps: a value for ``checkpoint.interval_steps``."""
    efficiency: float
    """Share of wall time spent on steps that count, 0..1."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What one GPU sends for one cause."""

    name: str
    """``tensor-parallel exchange``, ``parameter gathering``, ..."""
    link: Literal["NVLink", "PCIe", "InfiniBand", "Ethernet", "loopback"]
    """The slowest link on its way."""
    bytes_per_step: int


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A change that mends a finding, ready to paste."""

    overrides: tuple[str, ...]
    """``("training.micro_batch_size=4",)``."""
    effect: str = ""
    """What it leads to: ``fits, 69 GiB, 3.2 s a step``."""
    changes_convergence: bool = False


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A rule of the plan that a recipe breaks (error), strains (warning) or should know (note, hint)."""

    level: Level
    code: str
    """Stable: ``plan.tensor_heads``."""
    message: str
    keys: tuple[str, ...] = ()
    allowed: str | None = None
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What follows from a recipe. Pure: the same recipe gives the same plan, on a laptop and inside the job."""

    recipe_name: str
    recipe_digest: str
    plan_digest: str
    hardware: str
    """``16 x Standard_ND96isr_H100_v5 (128 x H100-SXM-80GB)``."""
    topology: Topology
    batch: Batch
    parameters: int
    active_parameters: int
    """Parameters a token passes through (fewer than all with experts)."""
    parameter_lines: tuple[ParameterLine, ...]
    memory: Memory
    time: Estimate
    cost: Cost
    energy: Energy
    storage: Storage
    calibration: Calibration
    assumptions: tuple[str, ...]
    """What was taken for granted, a sentence each."""
    findings: tuple[Finding, ...]
    goodput: Goodput | None = None
    """None on one's own machine."""
    traffic: tuple[Traffic, ...] = ()
    """What one GPU sends in a step, by cause and link."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that forbid running."""
        return tuple(finding for finding in self.findings if finding.level == "error")
