"""``make_plan``: what follows from a recipe. Pure: no clock, no disk, no network, the standard library alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.catalog import vm_sizes
from launcher.plan.batch import make_batch
from launcher.plan.codec import plan_digest
from launcher.plan.cost import make_cost
from launcher.plan.deepspeed_config import deepspeed_findings
from launcher.plan.energy import make_energy
from launcher.plan.families.moe import active_parameters, parameter_lines, parameters
from launcher.plan.findings import outcome_findings, recipe_findings, refusal, worst_first
from launcher.plan.flops import hardware_flops_per_token, model_flops_per_token
from launcher.plan.goodput import make_goodput
from launcher.plan.memory import make_memory
from launcher.plan.plan import Estimate, Plan, Storage
from launcher.plan.rules.case import Case
from launcher.plan.step_time import step_lines
from launcher.plan.topology import make_topology, processes_per_node
from launcher.plan.workloads import accelerator_of, usable_bytes, workload_of
from launcher.recipe.codec import digest

if TYPE_CHECKING:
    from launcher.catalog.accelerator import Accelerator
    from launcher.catalog.vm_size import VmSize
    from launcher.plan.goodput import Goodput
    from launcher.plan.plan import Batch, Calibration, Topology
    from launcher.plan.workload import Workload
    from launcher.recipe.schema import Recipe

CHECKPOINT_BYTES_PER_PARAMETER = 14
"""bf16 weights and fp32 master, momentum and variance."""
INTERVAL = 0.15
"""Half width of the interval around the step time."""


def make_plan(recipe: Recipe) -> Plan:
    """The plan of ``recipe``; what is wrong with it stands in its findings.

    Raises:
        PlanError: with every fault, when no plan can be computed at all (no topology, no batch, no accelerator).
    """
    size = vm_sizes.find(recipe.cluster.instance_type)
    accelerator = accelerator_of(recipe.cluster, size)
    case = Case(recipe=recipe, size=size, accelerator=accelerator, processes=processes_per_node(recipe, size))
    findings = recipe_findings(case)
    topology = make_topology(recipe, size)
    batch = make_batch(recipe.training, topology) if topology else None
    if topology is None or batch is None or accelerator is None:
        raise refusal(findings)
    findings += deepspeed_findings(recipe, topology, batch)
    plan = _assemble(recipe, size, accelerator, topology, batch)
    plan = replace(plan, findings=worst_first(findings + outcome_findings(case, plan)))
    return replace(plan, plan_digest=plan_digest(plan))


def _assemble(recipe: Recipe, size: VmSize, device: Accelerator, topology: Topology, batch: Batch) -> Plan:
    workload = workload_of(recipe, topology, batch, size, device)
    checkpoint_bytes = CHECKPOINT_BYTES_PER_PARAMETER * parameters(workload.shape)
    goodput = make_goodput(ranks=topology.world_size, nodes=topology.nodes, checkpoint_bytes=checkpoint_bytes)
    time = _estimate(workload, batch, goodput)
    cluster = recipe.cluster
    return Plan(
        recipe_name=recipe.name,
        recipe_digest=digest(recipe),
        plan_digest="",
        hardware=_hardware_words(size, device, topology),
        topology=topology,
        batch=batch,
        parameters=parameters(workload.shape),
        active_parameters=active_parameters(workload.shape),
        parameter_lines=parameter_lines(workload.shape),
        memory=make_memory(
            workload,
            usable_bytes=usable_bytes(cluster, size, device),
            processes_per_node=topology.processes_per_node,
        ),
        time=time,
        cost=make_cost(cluster, size, hours=time.expected_hours),
        energy=make_energy(device, ranks=topology.world_size, hours=time.expected_hours, region=cluster.region),
        storage=Storage(bytes_per_checkpoint=checkpoint_bytes, bytes_kept=checkpoint_bytes * recipe.checkpoint.keep),
        calibration=_calibration(workload),
        assumptions=_assumptions(workload),
        findings=(),
    )


def _hardware_words(size: VmSize, device: Accelerator, topology: Topology) -> str:
    return f"{topology.nodes} x {size.name} ({topology.world_size} x {device.name})"


def _estimate(workload: Workload, batch: Batch, goodput: Goodput) -> Estimate:
    lines = step_lines(workload)
    step = sum(line.seconds for line in lines)
    tokens_per_second = batch.tokens_per_step / step
    per_gpu = tokens_per_second / workload.layout.world
    flops = model_flops_per_token(workload.shape, workload.seq)
    peak = _published_peak(workload)
    hours = batch.train_steps * step / 3600
    return Estimate(
        step_seconds=step,
        low_seconds=step * (1 - INTERVAL),
        high_seconds=step * (1 + INTERVAL),
        tokens_per_second=tokens_per_second,
        tokens_per_second_per_gpu=per_gpu,
        mfu=None if peak is None else per_gpu * flops / peak,
        hfu=None if peak is None else per_gpu * hardware_flops_per_token(workload) / peak,
        flops_per_token=flops,
        hours=hours,
        expected_hours=hours / goodput.efficiency,
        lines=lines,
    )


def _published_peak(workload: Workload) -> float | None:
    """What utilisation is measured against; a CPU core has only the nominal speed we gave it, so it has none."""
    device = workload.hardware.accelerator
    return None if device.architecture == "cpu" else device.peak_flops(workload.precision)


def _calibration(workload: Workload) -> Calibration:
    return "inside" if workload.hardware.accelerator.architecture in ("ampere", "hopper", "blackwell") else "outside"


def _assumptions(workload: Workload) -> tuple[str, ...]:
    device = workload.hardware.accelerator
    if device.architecture == "cpu":
        return ("a CPU rank is taken as one core at nominal speed: nothing about this machine was measured",)
    return ()
