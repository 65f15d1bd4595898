"""Rules that need the plan's figures: memory, hours, dollars."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from launcher.plan.families.decoder import shape_of
from launcher.plan.flops import causal_flops_per_token
from launcher.plan.rules.case import finding
from launcher.units import GIB, format_bytes, format_dollars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Finding, Plan
    from launcher.plan.rules.case import Case

START_SHARE = 0.75
"""Of usable memory: what a copy before the first step may take before it is worth a word."""
HOST_SHARE = 0.85
NETWORK_SHARE = 0.4
"""Of the step, waiting for exchanges between nodes."""
_EXCHANGES = ("data-parallel exchange", "parameter gathering")
LIFETIME_HOURS = {"dedicated": 21 * 24, "spot": 7 * 24}
"""Azure ML ends a job after 21 days, 7 on low priority (how-to-manage-quotas.md, read 2026-11-30)."""


def memory(case: Case, plan: Plan) -> Iterator[Finding]:
    """The fullest rank fits its device."""
    held, usable = plan.memory.bytes_per_gpu, plan.memory.usable_bytes
    if usable is None or plan.memory.verdict == "fits":
        return
    biggest = max(plan.memory.lines, key=lambda line: line.bytes)
    figures = f"{format_bytes(held)} of {format_bytes(usable)} a GPU, {format_bytes(biggest.bytes)} {biggest.name}"
    if plan.memory.verdict == "tight":
        yield finding("warning", "memory_tight", f"tight: {figures}", "training.micro_batch_size")
        return
    keys = ("training.micro_batch_size", "parallelism.zero_stage", "training.activation_checkpointing")
    yield finding("error", "memory", f"does not fit: {figures}", *keys, allowed=f"at most {format_bytes(usable)}")


def start(case: Case, plan: Plan) -> Iterator[Finding]:
    """An engine that copies all weights before the first step may fail before it."""
    usable, needed = plan.memory.usable_bytes, plan.memory.start_bytes
    if usable is None or needed < START_SHARE * usable:
        return
    level = "error" if needed > usable else "warning"
    yield finding(
        "error" if level == "error" else "warning",
        "memory_start",
        f"tight before the first step: ZeRO-{case.recipe.parallelism.zero_stage} copies all 16-bit weights into one "
        f"flat buffer beside them, {format_bytes(needed)} of {format_bytes(usable)}",
        "parallelism.zero_stage",
        edits=(("parallelism.zero_stage=3",), ("parallelism.engine=fsdp", "parallelism.zero_stage=3")),
    )


def host_memory(case: Case, plan: Plan) -> Iterator[Finding]:
    """Offloaded state lives in the VM's memory."""
    needed, ram = plan.memory.host_bytes_per_node, case.size.ram_gib
    if not needed or ram is None or needed < HOST_SHARE * ram * GIB:
        return
    figures = f"{format_bytes(needed)} of {format_bytes(ram * GIB)} host memory a node"
    level = "error" if needed > ram * GIB else "warning"
    yield finding(
        "error" if level == "error" else "warning",
        "host_memory",
        f"offloaded state needs {figures}",
        "parallelism.offload_optimizer",
        "parallelism.offload_parameters",
        "cluster.instance_count",
        edits=(
            (f"cluster.instance_count={2 * case.recipe.cluster.instance_count}",),
            ("parallelism.offload_parameters=none",),
            ("parallelism.offload_optimizer=none", "parallelism.offload_parameters=none"),
        ),
    )


def network_bound(case: Case, plan: Plan) -> Iterator[Finding]:
    """A step that mostly waits for the links between nodes."""
    slow = next((row for row in plan.traffic if row.link in ("InfiniBand", "Ethernet") and "data" in row.name), None)
    waiting = sum(line.seconds for line in plan.time.lines if line.name in _EXCHANGES)
    share = waiting / plan.time.step_seconds
    if slow is None or share < NETWORK_SHARE:
        return
    yield finding(
        "warning",
        "network_bound",
        f"network bound: {format_bytes(slow.bytes_per_step)} a GPU and step between nodes over {slow.link} take "
        f"{share:.0%} of the step",
        "cluster.instance_type",
        "parallelism.zero_stage",
        "parallelism.shard_group_size",
        edits=((f"parallelism.shard_group_size={plan.topology.processes_per_node}",),)
        if case.recipe.parallelism.zero_stage == 3 and case.recipe.parallelism.engine == "fsdp"
        else (),
    )


def utilisation(case: Case, plan: Plan) -> Iterator[Finding]:
    """More than the peak is no speed but a convention: MFU counts all scores, causal kernels compute half of them."""
    mfu, training = plan.time.mfu, case.recipe.training
    if mfu is None or mfu <= 1:
        return
    causal = causal_flops_per_token(shape_of(case.recipe.model), training.seq_length) / plan.time.flops_per_token
    yield finding(
        "warning",
        "mfu",
        f"MFU of {mfu:.0%} counts the full square of {training.seq_length} x {training.seq_length} scores, as "
        f"Megatron-LM and PaLM do; against the half that causal attention needs it is {mfu * causal:.0%}",
        "training.seq_length",
    )


def lifetime(case: Case, plan: Plan) -> Iterator[Finding]:
    """A run longer than a job may live goes on in a second job, from a checkpoint."""
    cluster = case.recipe.cluster
    limit = LIFETIME_HOURS[cluster.tier]
    if cluster.backend != "azureml" or plan.time.expected_hours <= limit:
        return
    keys = ("cluster.tier", "checkpoint.interval_steps", "cluster.instance_count")
    days = plan.time.expected_hours / 24
    message = f"{days:.1f} days: Azure ML ends a {cluster.tier} job after {limit // 24} days"
    if case.recipe.checkpoint.interval_steps:
        yield finding("warning", "lifetime", f"{message}; the run goes on in another job from its checkpoint", *keys)
    else:
        edits = (("checkpoint.interval_steps=100",),)
        yield finding("error", "lifetime", f"{message}, and nothing is saved before the end", *keys, edits=edits)


def timeout(case: Case, plan: Plan) -> Iterator[Finding]:
    """A time limit below the planned hours ends the run early."""
    limit = case.recipe.limits.timeout_hours
    if limit is not None and plan.time.hours > limit:
        message = f"the plan takes {plan.time.hours:.3g} h; limits.timeout_hours ends it after {limit:g} h"
        edits = ((f"limits.timeout_hours={ceil(plan.time.expected_hours * 1.2)}",),)
        yield finding("warning", "timeout", message, "limits.timeout_hours", edits=edits)


def budget(case: Case, plan: Plan) -> Iterator[Finding]:
    """A plan dearer than the budget is refused; an unknown price cannot be held to one."""
    limit, dollars = case.recipe.limits.budget_dollars, plan.cost.dollars
    if dollars is None:
        name = f"{case.recipe.cluster.tier} price of {case.size.name}"
        message = f"the {name} is unknown: cluster.price_dollars_per_hour sets it"
        level = "note" if limit is None else "warning"
        yield finding(
            "warning" if level == "warning" else "note", "price_unknown", message, "cluster.price_dollars_per_hour"
        )
    elif limit is not None and dollars > limit:
        message = f"{format_dollars(dollars)} is more than limits.budget_dollars {format_dollars(limit)}"
        edits = ((f"limits.budget_dollars={ceil(dollars)}",),)
        yield finding("error", "budget", message, "limits.budget_dollars", edits=edits)
