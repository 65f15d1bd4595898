"""The manifest: what makes a folder a checkpoint. Written last; a folder without a whole one holds nothing.

checkpoints/
  step-00000300-1f9c2a/         the suffix is the writer's own, so that two attempts never share a folder
    manifest.json               step, tokens, data position, layout, recipe, and every file's size and SHA-256
    rank-00000.safetensors      pieces of parameters and of Adam's moments
  latest                        name of the newest: a hint for people; the manifests decide
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from launcher.training.checkpoint.storage import Written, sha256

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MANIFEST = "manifest.json"
LATEST = "latest"
WRITER = "writer"
UPDATES_BEFORE = "updates_before"
"""Scalar of a manifest: updates behind the moments that a run began with."""
FORMAT = "launcher-checkpoint"
FORMAT_VERSION = 1
_FOLDER = re.compile(r"step-(\d{8,})-[0-9a-f]{6}")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A checkpoint's contents."""

    step: int
    """Optimizer updates done."""
    tokens: int
    """Tokens seen in training."""
    data_position: int
    """Ordinal of the next sequence in the training order."""
    layout: dict[str, Any]
    """Engine, ZeRO stage, and the size of every axis of the world that wrote it."""
    recipe: dict[str, Any]
    """The recipe, without secrets."""
    recipe_digest: str
    attempt: int
    """Which attempt of the job wrote it."""
    random: str
    """How random numbers go on."""
    data_digest: str
    """Content and order of the corpora."""
    losses: dict[str, float | None]
    """First and last training loss so far."""
    scalars: dict[str, float]
    """What the engine keeps besides tensors."""
    files: tuple[Written, ...]

    @property
    def updates(self) -> int:
        """Updates behind Adam's moments: this run's, and those of the run they came from (``model.init_optimizer``)."""
        return self.step + int(self.scalars.get(UPDATES_BEFORE, 0))


def folder_name(step: int, token: str) -> str:
    """Name of the folder of a step; ``token`` is six hex digits of the writer's own."""
    return f"step-{step:08d}-{token}"


def render(manifest: Manifest) -> str:
    """The manifest as text, sealed by a digest of its own."""
    body = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(manifest)}
    return json.dumps({**body, "sha256": _seal(body)}, indent=1) + "\n"


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest in ``folder``; None when it is absent, torn, or of another format."""
    try:
        body = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        seal = body.pop("sha256")
        if seal != _seal(body) or (body.pop("format"), body.pop("format_version")) != (FORMAT, FORMAT_VERSION):
            return None
        files = tuple(Written(**file) for file in body.pop("files"))
        return Manifest(files=files, **body)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def step_folders(directory: Path) -> list[Path]:
    """Folders that look like checkpoints, newest step first; ``directory`` may be one itself."""
    if (directory / MANIFEST).is_file():
        return [directory]
    if not directory.is_dir():
        return []
    found = [path for path in directory.iterdir() if _FOLDER.fullmatch(path.name)]
    return sorted(found, key=lambda path: (_step(path), _written(path)), reverse=True)


def newest(directory: Path) -> tuple[Path, Manifest] | None:
    """The newest folder with a whole manifest. Its files are not read: see ``damage``."""
    for folder in step_folders(directory):
        manifest = read_manifest(folder)
        if manifest is not None:
            return folder, manifest
    return None


def damage(folder: Path, files: Iterable[Written]) -> str | None:
    """The first thing wrong with ``files`` in ``folder``; None when every byte is as it was written."""
    for file in files:
        path = folder / file.name
        if not path.is_file():
            return f"{file.name} is missing"
        if path.stat().st_size != file.bytes:
            return f"{file.name} has {path.stat().st_size} bytes, {file.bytes} were written"
        if sha256(path) != file.sha256:
            return f"{file.name} is not what was written (SHA-256 differs)"
    return None


def _step(folder: Path) -> int:
    match = _FOLDER.fullmatch(folder.name)
    assert match
    return int(match.group(1))


def _written(folder: Path) -> float:
    try:
        return (folder / MANIFEST).stat().st_mtime
    except OSError:
        return 0.0


def _seal(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
