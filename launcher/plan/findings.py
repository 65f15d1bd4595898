"""Every rule, in the order a person should mend what they find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.errors import Fault, PlanError
from launcher.plan.rules import (
    azure,
    calibration,
    checkpoint,
    cluster,
    engine,
    entry,
    finetuning,
    layout,
    outcome,
    training,
)

if TYPE_CHECKING:
    from launcher.plan.plan import Finding, Plan
    from launcher.plan.rules.case import Case

RULES = (
    cluster.local_accelerator,
    cluster.backend,
    cluster.status,
    cluster.processes,
    cluster.fraction,
    training.head_width,
    layout.tensor_heads,
    layout.tensor_island,
    layout.tensor_pcie,
    layout.pipeline_layers,
    layout.virtual_stages,
    layout.world_split,
    layout.data_asserted,
    layout.context_length,
    layout.experts,
    layout.shard_group,
    layout.sequence_parallel_alone,
    layout.vocabulary,
    engine.ddp_replicates,
    engine.deepspeed_tensor,
    engine.deepspeed_axes,
    engine.zero_alone,
    engine.offload,
    training.duration,
    training.nothing_to_read,
    training.global_batch,
    training.accumulation,
    training.interleaved_batches,
    training.few_micro_batches,
    training.sequence_length,
    training.selective_fused,
    training.warmup,
    training.precision,
    finetuning.starting_weights,
    finetuning.warm_moments,
    finetuning.adapters,
    finetuning.adapted_layers,
    finetuning.profiling,
    cluster.network,
    cluster.image,
    cluster.node_limit,
    cluster.shared_memory,
    calibration.own_constants,
    entry.arguments,
    entry.nested_launcher,
    entry.enters_nodes,
    checkpoint.spot,
    checkpoint.directory,
    azure.variables,
    azure.inputs,
    azure.environment,
    azure.services,
    azure.storage,
)
"""Rules of the recipe alone."""

OUTCOME_RULES = (
    outcome.memory,
    outcome.start,
    outcome.host_memory,
    outcome.network_bound,
    outcome.utilisation,
    outcome.lifetime,
    outcome.timeout,
    outcome.budget,
)
"""Rules of the recipe and its plan."""

_ORDER = {"error": 0, "warning": 1, "note": 2, "hint": 3}


def recipe_findings(case: Case) -> tuple[Finding, ...]:
    """What the recipe alone breaks or strains."""
    return tuple(found for rule in RULES for found in rule(case))


def outcome_findings(case: Case, plan: Plan) -> tuple[Finding, ...]:
    """What only the plan's figures show."""
    return tuple(found for rule in OUTCOME_RULES for found in rule(case, plan))


def worst_first(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Errors before warnings before notes before hints."""
    return tuple(sorted(findings, key=lambda found: _ORDER[found.level]))


class RefusedPlanError(PlanError):
    """No plan can be computed; ``findings`` are the errors that say why, each with edits that mend it."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        self.findings = tuple(found for found in findings if found.level == "error")
        super().__init__([as_fault(found) for found in self.findings])


def as_fault(found: Finding) -> Fault:
    """A finding in the words of an error; its first edit is what to try."""
    return Fault(
        what=found.message,
        keys=found.keys,
        allowed=found.allowed,
        suggestion=" ".join(found.edits[0].overrides) if found.edits else None,
        code=found.code,
    )
