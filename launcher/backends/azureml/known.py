"""What this machine knows of a run on Azure ML, kept beside local runs: plan, recipe, job, and which workspace."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from launcher.home import runs_folder
from launcher.recipe.redact import redact

if TYPE_CHECKING:
    from launcher.backends.azureml.address import Address

_ADDRESS = "azureml.json"


def keep(name: str, address: Address, *, document: dict[str, Any], plan: dict[str, Any]) -> None:
    """Write it down, without secrets, before the job is sent."""
    folder = runs_folder() / name
    folder.mkdir(parents=True, exist_ok=True)
    documents = {
        "job.json": redact(document),
        "plan.json": plan,
        "recipe.json": redact(document["recipe"]),
        _ADDRESS: asdict(address),
    }
    for file, content in documents.items():
        (folder / file).write_text(json.dumps(content, indent=1), encoding="utf-8")


def known_address(name: str) -> dict[str, str] | None:
    """The workspace a run was sent to from here; None of a colleague's run."""
    document = _read(name, _ADDRESS)
    return document and {key: str(value) for key, value in document.items()}


def known_plan(name: str) -> dict[str, Any] | None:
    """The plan of a run that was submitted from here."""
    return _read(name, "plan.json")


def _read(name: str, file: str) -> dict[str, Any] | None:
    path = runs_folder() / name / file
    return dict(json.loads(path.read_bytes())) if path.is_file() else None
