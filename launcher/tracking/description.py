"""What is known of a run before its first step: parameters, tags, artifacts, and where they go. Secrets removed."""

from __future__ import annotations

import json
import os
import platform
import re
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from launcher.recipe.redact import REDACTED, redact, redact_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from launcher.plan.plan import Plan

FIRST_SECTIONS = ("model", "parallelism", "training", "data", "cluster")
"""Sections whose keys are kept first where a service takes fewer parameters than a recipe has."""
PACKAGES = (
    "launcher", "torch", "deepspeed", "transformers", "tokenizers", "safetensors", "numpy", "pyarrow", "mlflow",
    "azureml-mlflow", "hydra-core", "triton", "flash-attn", "transformer-engine", "nvidia-nccl-cu12",
)  # fmt: skip
"""Distributions whose versions decide what a run computes, or how fast."""
SHORTEST_SECRET = 4
"""Characters; a shorter secret is hidden where its key stands, but not looked for in other text."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """A run before its first step."""

    target: dict[str, Any]
    """Where it is tracked: ``uri`` (None: decided from the environment), ``experiment``, ``name``, ``attempt``,
    ``system_metrics``."""
    parameters: dict[str, str]
    """The resolved recipe by dotted key, and the plan's main figures as ``plan.NAME``; most telling first."""
    tags: dict[str, str]
    artifacts: dict[str, str]
    """Text by file name."""
    secrets: tuple[str, ...]
    """Values of the recipe that must not leave it, longest first."""

    def without_secrets(self, text: str) -> str:
        """``text`` without the recipe's secret values, as they are or as in a URL, and without what looks like one."""
        return _without(self.secrets, text)


def describe(document: Mapping[str, Any], *, plan: Plan | None, attempt: int = 1) -> Description:
    """The description of the job in ``document`` (job.json)."""
    recipe = document["recipe"]
    clean = redact(recipe)
    secrets = sorted({text for text in _hidden(recipe, clean) if len(text) >= SHORTEST_SECRET}, key=len, reverse=True)
    described = flatten(clean) | _planned(plan)
    settings = recipe.get("tracking", {})
    return Description(
        target={
            "uri": settings.get("uri"),
            "experiment": settings.get("experiment", "launcher"),
            "name": document["name"],
            "attempt": attempt,
            "system_metrics": settings.get("system_metrics", True),
        },
        parameters={name: _without(secrets, text) for name, text in described.items()},
        tags={name: _without(secrets, text) for name, text in _tags(document, clean, attempt).items()},
        artifacts={name: _without(secrets, text) for name, text in _artifacts(clean, plan).items()},
        secrets=tuple(secrets),
    )


def flatten(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Dotted key -> text, the sections that tell most first; what is None was not asked for and is left out.

    Text stands as it is, everything else as JSON, so ``true`` and ``1e-05`` are spelled as in a recipe.
    """
    ranks = {section: rank for rank, section in enumerate(FIRST_SECTIONS)}
    leaves = sorted(_leaves(recipe), key=lambda leaf: ranks.get(leaf[0].split(".")[0], len(ranks)))
    return {key: _text(value) for key, value in leaves if value is not None}


def _leaves(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in mapping.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _planned(plan: Plan | None) -> dict[str, str]:
    if plan is None:
        return {}
    figures = {
        "plan.world_size": plan.topology.world_size,
        "plan.data_parallel_size": plan.topology.data_parallel_size,
        "plan.gradient_accumulation_steps": plan.batch.gradient_accumulation_steps,
        "plan.parameters": plan.parameters,
        "plan.step_seconds": plan.time.step_seconds,
        "plan.bytes_per_gpu": plan.memory.bytes_per_gpu,
        "plan.dollars": plan.cost.dollars,
    }
    return {name: _text(value) for name, value in figures.items() if value is not None}


def _tags(document: Mapping[str, Any], recipe: Mapping[str, Any], attempt: int) -> dict[str, str]:
    known = {
        "recipe": recipe.get("name"),
        "recipe_digest": document.get("recipe_digest"),
        "plan_digest": document.get("plan_digest"),
        "git_commit": document.get("git_commit"),
        "attempt": attempt,
    }
    return {name: str(value) for name, value in {**recipe.get("tags", {}), **known}.items() if value is not None}


def _artifacts(recipe: Mapping[str, Any], plan: Plan | None) -> dict[str, str]:
    documents: dict[str, Any] = {"recipe.json": recipe, "environment.json": environment()}
    if plan is not None:
        from launcher.plan import codec

        documents["plan.json"] = codec.encode(plan)
    return {name: json.dumps(document, indent=2) + "\n" for name, document in documents.items()}


def environment() -> dict[str, Any]:
    """Versions of what computes: Python, the platform, and the packages that matter, where installed."""
    versions = {name.lower(): version for name in PACKAGES if (version := _version(name)) is not None}
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": versions,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _without(secrets: Iterable[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, REDACTED).replace(quote(secret, safe=""), REDACTED)
    return redact_text(text)


def _hidden(value: Any, shown: Any) -> Iterator[str]:
    """What redaction took out of ``value`` to leave ``shown``."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _hidden(item, shown[key])
    elif isinstance(value, list | tuple):
        for item, shown_item in zip(value, shown, strict=True):
            yield from _hidden(item, shown_item)
    elif value != shown:
        around = map(re.escape, str(shown).split(REDACTED))
        found = re.fullmatch("(.+)".join(around), str(value), re.DOTALL)
        yield from found.groups() if found else (str(value),)
