"""``make_plan``: what follows from a recipe. Pure: no clock, no disk, no network, the standard library alone."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING

from launcher.catalog import vm_sizes
from launcher.errors import PlanError
from launcher.plan.assumptions import assumptions
from launcher.plan.batch import make_batch
from launcher.plan.calibration import HALF_WIDTH, constants_of
from launcher.plan.codec import plan_digest
from launcher.plan.confidence import half_width, outside_reasons
from launcher.plan.cost import make_cost, make_storage
from launcher.plan.deepspeed_config import deepspeed_findings
from launcher.plan.energy import make_energy
from launcher.plan.families.moe import active_parameters, parameter_lines, parameters
from launcher.plan.findings import RefusedPlanError, outcome_findings, recipe_findings, worst_first
from launcher.plan.flops import hardware_flops_per_token, lora_flops_per_token, model_flops_per_token
from launcher.plan.goodput import make_goodput
from launcher.plan.memory import make_memory
from launcher.plan.mend import mended, refused
from launcher.plan.plan import Estimate, Plan
from launcher.plan.rules.case import Case
from launcher.plan.states import checkpoint_bytes
from launcher.plan.step_time import step, step_lines
from launcher.plan.topology import make_topology, processes_per_node
from launcher.plan.traffic import traffic
from launcher.plan.workloads import accelerator_of, usable_bytes, workload_of
from launcher.recipe.codec import digest

if TYPE_CHECKING:
    from launcher.catalog.accelerator import Accelerator
    from launcher.catalog.vm_size import VmSize
    from launcher.plan.plan import Batch, Topology
    from launcher.plan.step_time import Step
    from launcher.plan.workload import Workload
    from launcher.recipe.schema import Recipe

LOCAL_EFFICIENCY = 1.0
"""One's own machine is not expected to fail."""


def make_plan(recipe: Recipe) -> Plan:
    """The plan of ``recipe``; what is wrong with it stands in its findings, with edits that mend it.

    Raises:
        PlanError: with every fault, when no plan can be computed at all (no topology, no batch, no accelerator).
    """
    try:
        plan = bare_plan(recipe)
    except PlanError as error:
        raise refused(recipe, error, bare_plan) from None
    plan = replace(plan, findings=mended(recipe, plan, bare_plan))
    plan = replace(plan, recipe_digest=digest(recipe))
    return replace(plan, plan_digest=plan_digest(plan))


def bare_plan(recipe: Recipe) -> Plan:
    """The plan without digests, its edits without their effects.

    Raises:
        PlanError: see ``make_plan``.
    """
    size = vm_sizes.find(recipe.cluster.instance_type)
    accelerator = accelerator_of(recipe.cluster, size)
    case = Case(recipe=recipe, size=size, accelerator=accelerator, processes=processes_per_node(recipe, size))
    findings = recipe_findings(case)
    topology = make_topology(recipe, size)
    batch = make_batch(recipe.training, topology) if topology else None
    if topology is None or batch is None or accelerator is None:
        raise RefusedPlanError(findings)
    findings += deepspeed_findings(recipe, topology, batch)
    plan = _assemble(recipe, size, accelerator, topology, batch)
    return replace(plan, findings=worst_first(findings + outcome_findings(case, plan)))


def workload_from(recipe: Recipe) -> Workload:
    """The recipe as the predictors see it, whether its plan would be accepted or not.

    Raises:
        PlanError: there is no topology, no batch or no accelerator.
    """
    size = vm_sizes.find(recipe.cluster.instance_type)
    accelerator, topology = accelerator_of(recipe.cluster, size), make_topology(recipe, size)
    batch = make_batch(recipe.training, topology) if topology else None
    if topology is None or batch is None or accelerator is None:
        raise PlanError(f"no plan can be computed of {recipe.name}: launcher plan says why")
    return workload_of(recipe, topology, batch, size, accelerator)


def _assemble(recipe: Recipe, size: VmSize, device: Accelerator, topology: Topology, batch: Batch) -> Plan:
    workload = workload_of(recipe, topology, batch, size, device)
    count, cluster = parameters(workload.shape), recipe.cluster
    saved = checkpoint_bytes(workload)
    taken = step(workload, constants_of(recipe.calibration))
    seconds, ranks, nodes = taken.seconds, topology.world_size, topology.nodes
    goodput = (
        None if size.is_local else make_goodput(ranks=ranks, nodes=nodes, checkpoint_bytes=saved, step_seconds=seconds)
    )
    width = half_width(workload, recipe.calibration.get(HALF_WIDTH))
    time = _estimate(workload, batch, taken, width, goodput.efficiency if goodput else LOCAL_EFFICIENCY)
    return Plan(
        recipe_name=recipe.name,
        recipe_digest="",
        plan_digest="",
        hardware=f"{nodes} x {size.name} ({ranks} x {device.name})",
        topology=topology,
        batch=batch,
        parameters=count,
        active_parameters=active_parameters(workload.shape),
        parameter_lines=parameter_lines(workload.shape),
        memory=make_memory(
            workload,
            usable_bytes=usable_bytes(cluster, size, device),
            processes_per_node=topology.processes_per_node,
        ),
        time=time,
        cost=make_cost(cluster, size, hours=time.expected_hours),
        energy=make_energy(device, ranks=ranks, hours=time.expected_hours, region=cluster.region or size.price.region),
        storage=make_storage(saved, recipe.checkpoint.keep, is_free=size.is_local),
        calibration="outside" if outside_reasons(workload) else "inside",
        assumptions=assumptions(workload, size, device, has_own=bool(recipe.calibration)),
        findings=(),
        goodput=goodput,
        traffic=traffic(workload),
    )


def _estimate(workload: Workload, batch: Batch, step_taken: Step, width: float, efficiency: float) -> Estimate:
    taken = step_taken.seconds
    tokens_per_second = batch.tokens_per_step / taken
    per_gpu = tokens_per_second / workload.layout.world
    needed = lora_flops_per_token if workload.lora_rank else model_flops_per_token
    flops = needed(workload.shape, workload.seq)
    peak = workload.hardware.accelerator.peak_flops(workload.precision)
    hours, spread = batch.train_steps * taken / 3600, exp(width)
    return Estimate(
        step_seconds=taken,
        low_seconds=taken / spread,
        high_seconds=taken * spread,
        tokens_per_second=tokens_per_second,
        tokens_per_second_per_gpu=per_gpu,
        mfu=None if peak is None else per_gpu * flops / peak,
        hfu=None if peak is None else per_gpu * hardware_flops_per_token(workload) / peak,
        flops_per_token=flops,
        hours=hours,
        expected_hours=hours / efficiency,
        lines=step_lines(workload, step_taken),
    )
