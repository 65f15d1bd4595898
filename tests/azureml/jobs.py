"""JobSpecs for the tests of the Azure ML backend: the same small run on any VM size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from launcher.catalog import vm_sizes
from launcher.job.build import build_job
from launcher.job.snapshot import take_snapshot
from launcher.job.spec import JobSpec, Snapshot
from launcher.job.stage import stage_code
from launcher.plan.planner import make_plan
from launcher.recipe.codec import decode
from launcher.recipe.schema import Cluster
from tests.plan.recipes import fitting_environment

if TYPE_CHECKING:
    from pathlib import Path

TRAINER = ("python", "-m", "launcher.training", "{job}", "--output", "{output}")


def job_on(
    instance_type: str, *, nodes: int = 2, recipe: dict[str, Any] | None = None, name: str = "run", **fields: Any
) -> JobSpec:
    """A job of ``nodes`` VMs, one process per GPU."""
    size = vm_sizes.find(instance_type)
    job = JobSpec(
        name=f"{name}-5d0c91aa7be2f013-1",
        display_name=name,
        experiment="launcher",
        attempt=1,
        command=TRAINER,
        nodes=nodes,
        processes_per_node=max(size.gpus, 1),
        instance_type=instance_type,
        device="gpu" if size.gpus else "cpu",
        environment_variables={},
        environment_name=fitting_environment(Cluster(instance_type=instance_type)),
        snapshot=Snapshot(root=".", commit=None, is_dirty=False, digest="0" * 64),
        document={"schema_version": 1, "name": f"{name}-5d0c91aa7be2f013-1", "attempt": 1, "recipe": recipe or {}},
        plan={},
    )
    return replace(job, **fields)


def tiny_job(root: Path, *, seed: int = 1, attempt: int = 1, steps: int = 2, **sections: dict[str, Any]) -> JobSpec:
    """A job of the smallest recipe there is, on a CPU size; another seed is another intent."""
    recipe = decode(
        {
            "name": "tiny",
            "model": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 256},
            "training": {
                "seq_length": 16,
                "global_batch_size": 12,
                "train_steps": steps,
                "seed": seed,
                "precision": "fp32",
            },
            "data": {"train": ["demo"]},
            "cluster": {"backend": "azureml", "instance_type": "Standard_D4s_v3", **sections.pop("cluster", {})},
            **sections,
        }
    )
    snapshot = replace(take_snapshot(root), digest=stage_code(root, recipe.entry).digest)
    return build_job(recipe, make_plan(recipe), snapshot, attempt=attempt)


class Variants:
    """Many jobs of one code and plan that differ in their intent: for tests that send jobs and run none."""

    def __init__(self, root: Path, *, script: str | None = None) -> None:
        self._job = tiny_job(root, entry={"script": script})
        self._recipe = decode(self._job.document["recipe"])
        self._plan = make_plan(self._recipe)

    def job(self, seed: int) -> JobSpec:
        """The job of ``seed``."""
        recipe = replace(self._recipe, training=replace(self._recipe.training, seed=seed))
        return build_job(recipe, self._plan, self._job.snapshot)
