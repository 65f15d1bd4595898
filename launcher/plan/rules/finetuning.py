"""Rules of starting from weights that exist, of adapters beside them, and of looking into steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.families.adapters import linear_layers
from launcher.plan.profiled import profiled_steps
from launcher.plan.rules.case import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Finding
    from launcher.plan.rules.case import Case

_INIT, _RANK, _TARGETS = "model.init_from", "training.lora.rank", "training.lora.target_modules"
_NO_LORA = f"{_RANK}=0"
_ALONE = ("tensor_parallel_size", "pipeline_parallel_size", "expert_parallel_size")


def starting_weights(case: Case) -> Iterator[Finding]:
    """Weights to begin with lie where the run can read them."""
    source, backend = case.recipe.model.init_from or "", case.recipe.cluster.backend
    if backend == "local" and source.startswith("azureml:"):
        message = f"{source} is in a workspace, and runs on this machine read folders"
        allowed = "a Hugging Face folder, a checkpoint folder, or local:RUN (launcher download fetches a run)"
        yield finding("error", "init_remote", message, _INIT, "cluster.backend", allowed=allowed)
    if backend == "azureml" and source.startswith("local:"):
        message = f"{source} is a run on this machine, which no Azure ML job can read"
        allowed = "azureml:NAME:VERSION of a model, or azureml://datastores/NAME/paths/..."
        yield finding("error", "init_local", message, _INIT, "cluster.backend", allowed=allowed)


def warm_moments(case: Case) -> Iterator[Finding]:
    """Adam's moments come from a checkpoint of all weights."""
    model = case.recipe.model
    if not model.init_optimizer:
        return
    key, undo = "model.init_optimizer", ("model.init_optimizer=false",)
    if model.init_from is None:
        message = "init_optimizer takes Adam's moments from init_from, which names nothing"
        yield finding("error", "init_optimizer", message, key, _INIT, edits=(undo,))
    if case.recipe.training.lora.rank:
        message = "moments of whole weights say nothing about their adapters"
        yield finding("error", "init_optimizer", message, key, _RANK, edits=(undo, (_NO_LORA,)))


def adapters(case: Case) -> Iterator[Finding]:
    """Adapters run where each rank has whole layers, at least while it computes them: ddp, and fsdp over data."""
    recipe, layout = case.recipe, case.recipe.parallelism
    if not recipe.training.lora.rank:
        return
    if layout.engine == "deepspeed":
        message = "engine deepspeed trains all weights here: it has no adapters"
        keys = (_RANK, "parallelism.engine")
        edits = (("parallelism.engine=fsdp",), (_NO_LORA,))
        yield finding("error", "lora_engine", message, *keys, allowed="ddp, fsdp", edits=edits)
        return
    for name in _ALONE:
        if getattr(layout, name) > 1:
            message = f"adapters stand beside whole layers: they do not combine with {name}={getattr(layout, name)}"
            allowed, undo = "data and context ranks, sharded or not", f"parallelism.{name}=1"
            keys, mends = (_RANK, f"parallelism.{name}"), ((undo, "parallelism.zero_stage=3"), (_NO_LORA,))
            yield finding("error", "lora_layout", message, *keys, allowed=allowed, edits=mends)
    if recipe.training.precision == "fp8":
        message = "fp8 products are made for layers that are trained whole, not for adapters beside them"
        edits = (("training.precision=bf16",), (_NO_LORA,))
        yield finding("error", "lora_precision", message, _RANK, "training.precision", edits=edits)


def adapted_layers(case: Case) -> Iterator[Finding]:
    """Adapters stand beside linear layers that there are, of a model that has learnt something."""
    lora, model = case.recipe.training.lora, case.recipe.model
    if not lora.rank:
        return
    known = tuple(linear_layers(model))
    strange = [name for name in lora.target_modules if name not in known]
    if strange:
        message = f"{model.model_type} has no linear layer {', '.join(strange)} in its decoder layers"
        edits = ((f"{_TARGETS}=[]",),)
        yield finding("error", "lora_targets", message, _TARGETS, allowed=", ".join(known), edits=edits)
    if model.init_from is None:
        message = "adapters stand beside weights that nobody has trained: init_from names none"
        yield finding("warning", "lora_untrained", message, _INIT, _RANK, edits=((_NO_LORA,),))


def profiling(case: Case) -> Iterator[Finding]:
    """Steps to record are steps of the run."""
    training = case.recipe.training
    if training.profile is None:
        return
    steps, last = profiled_steps(training.profile), training.train_steps
    if steps is not None and (last is None or steps[-1] <= last):
        return
    within = "" if last is None else f", within 1 to {last}"
    yield finding(
        "error", "profile", f"profile = {training.profile} names no steps of the run", "training.profile",
        "training.train_steps", allowed=f"steps:FIRST-LAST{within}", edits=(("training.profile=null",),),
    )  # fmt: skip
