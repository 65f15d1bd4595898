"""What becomes of a run that another recipe continues: whether its checkpoint can be read, and what changes there.

Our checkpoints are read by any layout: each rank takes the elements it holds (``training/checkpoint/restore.py``). So
only another model stands in the way, and a checkpoint of DeepSpeed's own, which is bound to the ranks that wrote it
until it is converted (https://www.deepspeed.ai/tutorials/universal-checkpointing).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.backends import parse_handle
from launcher.backends.local.backend import run_folder
from launcher.errors import Fault
from launcher.plan.planner import make_plan
from launcher.recipe import codec
from launcher.recipe.diff import changes
from launcher.runs.checkpoints import Shelf, no_checkpoint
from launcher.runs.remembered import recipe_of
from launcher.training.checkpoint.manifest import read_manifest, step_folders
from launcher.training.checkpoint.universal_folder import find_universal

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.plan.plan import Plan
    from launcher.recipe.diff import Change
    from launcher.recipe.schema import Recipe
    from launcher.training.checkpoint.manifest import Manifest

_COMPARED = ("model", "training", "data", "parallelism")
"""Sections that decide what is learnt and on which ranks; others may hold secrets, which a manifest leaves out."""
AXES = ("tensor", "pipeline", "context", "expert", "data")
_SHAPE = "model."
_NOT_OF_THE_SHAPE = (
    "model.init_from",
    "model.init_optimizer",
    "model.dropout",
    "model.initializer_range",
    "model.router_aux_loss_coef",
)
"""Keys of the model that say nothing about the shape of its parameters."""
_ADAPTERS = ("training.lora.rank", "training.lora.target_modules")
"""Which parameters are trained, and so are in a checkpoint."""
_PARTITION = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_\d+_optim_states\.pt")


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """A checkpoint beside the recipe and plan that are to go on from it."""

    checkpoint: Path | None
    """None where only the job can see it."""
    step: int | None
    """Optimizer updates done; None where only the job will know."""
    train_steps: int
    written_by: str
    """The layout that wrote it: ``fsdp ZeRO-3, tensor 2 x pipeline 1 x context 1 x data 4``."""
    read_by: str
    changes: tuple[Change, ...]
    """What differs from the recipe it was written under, of model, training, data and parallelism."""
    faults: tuple[Fault, ...]
    """Why it cannot be read."""

    @property
    def is_resharded(self) -> bool:
        """Whether ranks hold other parts than those that were written."""
        return self.written_by != self.read_by


def continuation_of(handle: str, recipe: Recipe, plan: Plan) -> Continuation:
    """How ``recipe`` goes on from a run; what only its storage knows is None for one that ran elsewhere.

    Raises:
        NoSuchRunError: there is no such run.
        RunFailedError: it left no checkpoint.
    """
    if parse_handle(handle)[0] != "local":
        return _elsewhere(handle, recipe, plan)
    directory = Shelf(run_folder(handle)).directory
    found = continuation(directory, recipe, plan)
    if found is None:
        raise no_checkpoint(handle, directory)
    return found


def continuation(directory: Path, recipe: Recipe, plan: Plan) -> Continuation | None:
    """How ``recipe`` goes on from the newest checkpoint in ``directory``; None when there is none.

    Args:
        directory: A run's checkpoint folder, one checkpoint of it, or DeepSpeed's save folder.
        recipe: What is to go on.
        plan: Its plan.
    """
    for folder in step_folders(directory):
        manifest = read_manifest(folder)
        if manifest is not None:
            return _ours(folder, manifest, recipe, plan)
    return _deepspeeds(directory, recipe, plan)


def _ours(folder: Path, manifest: Manifest, recipe: Recipe, plan: Plan) -> Continuation:
    before = codec.decode({section: manifest.recipe[section] for section in ("name", *_COMPARED)})
    found = tuple(change for change in changes(before, recipe) if change.key.startswith(_COMPARED))
    return Continuation(
        checkpoint=folder,
        step=manifest.step,
        train_steps=plan.batch.train_steps,
        written_by=_written_words(manifest.layout),
        read_by=_plan_words(recipe, plan),
        changes=found,
        faults=(*_shape_faults(found), *_length_faults(manifest.step, plan)),
    )


def _elsewhere(handle: str, recipe: Recipe, plan: Plan) -> Continuation:
    """By the recipe the run was submitted with: its checkpoints are where the job will read them."""
    before = recipe_of(handle)
    found = tuple(change for change in changes(before, recipe) if change.key.startswith(_COMPARED))
    return Continuation(
        checkpoint=None, step=None, train_steps=plan.batch.train_steps,
        written_by=_plan_words(before, make_plan(before)), read_by=_plan_words(recipe, plan),
        changes=found, faults=_shape_faults(found),
    )  # fmt: skip


def _shape_faults(found: tuple[Change, ...]) -> tuple[Fault, ...]:
    """Another model: parameters of the checkpoint have no place in it."""
    shapes = [c for c in found if c.key.startswith(_SHAPE) and c.key not in _NOT_OF_THE_SHAPE]
    others = [*shapes, *(c for c in found if c.key in _ADAPTERS)]
    return tuple(
        Fault(
            what=f"the checkpoint holds a model with {change.key}={change.left}, the recipe asks for {change.right}",
            keys=(change.key,),
            allowed=str(change.left),
            suggestion=f"{change.key}={change.left}",
            code="resume.model",
        )
        for change in others
    )


def _length_faults(step: int, plan: Plan) -> tuple[Fault, ...]:
    if step < plan.batch.train_steps:
        return ()
    return (
        Fault(
            what=f"the checkpoint is of step {step}, and the recipe ends with step {plan.batch.train_steps}",
            keys=("training.train_steps",),
            allowed=f"more than {step}",
            suggestion=f"training.train_steps={2 * step}",
            code="resume.finished",
        ),
    )


def _deepspeeds(directory: Path, recipe: Recipe, plan: Plan) -> Continuation | None:
    """DeepSpeed's own save: readable once it is universal, by nobody here before."""
    universal = find_universal(directory)
    if universal is not None:
        return _foreign(universal, recipe, plan, written_by="DeepSpeed, universal", faults=())
    folder = _latest(directory)
    ranks = {int(match[1]) for path in folder.glob("*_optim_states.pt") if (match := _PARTITION.fullmatch(path.name))}
    if not ranks:
        return None
    wrote, reads = max(ranks) + 1, plan.topology.data_parallel_size
    what = f"{folder.name} is DeepSpeed's own checkpoint of {wrote} data-parallel ranks; this plan has {reads}"
    fault = Fault(
        what=what,
        keys=("parallelism.data_parallel_size",),
        allowed="a checkpoint of ours, or a universal one of DeepSpeed's",
        suggestion=f"python -m deepspeed.checkpoint.ds_to_universal --input_folder {folder} "
        f"--output_folder {folder}_universal\n"
        f"python {folder.parent / 'zero_to_fp32.py'} --safe_serialization {folder.parent} WEIGHTS    "
        "and model.init_from=WEIGHTS, without the optimizer's state",
        code="resume.deepspeed",
    )
    return _foreign(folder, recipe, plan, written_by=f"DeepSpeed, data {wrote}", faults=(fault,))


def _foreign(folder: Path, recipe: Recipe, plan: Plan, *, written_by: str, faults: tuple[Fault, ...]) -> Continuation:
    return Continuation(
        checkpoint=folder, step=None, train_steps=plan.batch.train_steps, written_by=written_by,
        read_by=_plan_words(recipe, plan), changes=(), faults=faults,
    )  # fmt: skip


def _latest(directory: Path) -> Path:
    """The folder that DeepSpeed's ``latest`` names, or ``directory`` itself."""
    pointer = directory / "latest"
    return directory / pointer.read_text(encoding="utf-8").strip() if pointer.is_file() else directory


def _written_words(layout: dict[str, Any]) -> str:
    return _words(layout["engine"], layout["zero_stage"], layout)


def _plan_words(recipe: Recipe, plan: Plan) -> str:
    sizes = {f"{axis}_parallel_size": getattr(plan.topology, f"{axis}_parallel_size") for axis in AXES}
    return _words(recipe.parallelism.engine, recipe.parallelism.zero_stage, sizes)


def _words(engine: str, zero_stage: int, sizes: dict[str, Any]) -> str:
    axes = " x ".join(f"{axis} {sizes[f'{axis}_parallel_size']}" for axis in AXES if axis != "expert")
    expert = sizes["expert_parallel_size"]
    return f"{engine} ZeRO-{zero_stage}, {axes}" + (f", experts over {expert}" if expert > 1 else "")
