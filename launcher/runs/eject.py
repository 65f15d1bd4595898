"""A job as plain files: what ``az ml job create`` takes, and nothing of ours is needed to run it again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.backends.azureml.prepared import prepare
from launcher.backends.azureml.yaml_text import to_yaml
from launcher.errors import UsageError
from launcher.job.stage import write
from launcher.plan.deepspeed_config import deepspeed_config
from launcher.recipe.redact import redact

if TYPE_CHECKING:
    from launcher.backends.azureml.prepared import Prepared
    from launcher.job.spec import JobSpec
    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe

DEEPSPEED_FILE = "deepspeed_config.json"


def eject(job: JobSpec, recipe: Recipe, plan: Plan, folder: Path) -> tuple[Path, ...]:
    """Write everything into ``folder``, without secrets; the names of what was written, relative to it.

    Raises:
        UsageError: the folder is there already.
        PlanError: Azure ML would get the job wrong, or the code holds a secret.
    """
    if folder.exists():
        raise UsageError(f"{folder} is there already", suggestion="a folder that is not there yet")
    prepared = prepare(job)
    write(prepared.staged, folder / "code")
    (folder / "job.json").write_text(_json(redact(job.document)), encoding="utf-8")
    (folder / "job.yaml").write_text(_job_yaml(prepared), encoding="utf-8")
    written = [Path("job.yaml"), Path("job.json"), Path("code")]
    if recipe.parallelism.engine == "deepspeed":
        generated = deepspeed_config(recipe, plan.topology, plan.batch)
        (folder / DEEPSPEED_FILE).write_text(_json(generated), encoding="utf-8")
        written.append(Path(DEEPSPEED_FILE))
    if prepared.definition:
        shutil.copytree(prepared.definition.folder, folder / "environment")
        written.append(Path("environment"))
    return tuple(written)


def _job_yaml(prepared: Prepared) -> str:
    """The command job with its environment built from the folder beside it, not from one we registered."""
    document: dict[str, Any] = redact(prepared.document())
    if prepared.definition:
        document["environment"] = {"build": {"path": "./environment", "dockerfile_path": "Dockerfile"}}
    notes = "".join(f"# note: {note}\n" for note in prepared.notes())
    return f"{notes}# az ml job create --file job.yaml\n{to_yaml(document)}"


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"
