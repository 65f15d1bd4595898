"""Software environments by name: folders of ``environments/``, registered in the workspace by content digest.

A folder describes itself: its Dockerfile's ``LABEL launcher.device`` (cpu or gpu), ``launcher.architecture`` (x86_64 or
aarch64) and ``launcher.topology`` (folder of NCCL topology files inside the image). To add one, add a folder.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import launcher
from launcher.errors import RecipeError
from launcher.registry import nearest

ASSET_PREFIX = "launcher"
_LABEL = re.compile(r'launcher\.(\w+)="([^"]*)"')
_NOT_PART_OF_THE_IMAGE = frozenset({"environment.yaml"})


@dataclass(frozen=True, kw_only=True)
class Definition:
    """An environment that can be built: what its image is for, and the version its content has."""

    name: str
    folder: Path
    version: str
    """First 16 hex digits of the content's SHA-256: changed content is a new version, unchanged content the old one."""
    device: str
    architecture: str
    topology_folder: str | None

    @property
    def asset_name(self) -> str:
        """Name of the environment asset in the workspace."""
        return f"{ASSET_PREFIX}-{self.name}"

    @property
    def reference(self) -> str:
        """``azureml:launcher-cuda:3f9c2a71...``: never without a version."""
        return f"azureml:{self.asset_name}:{self.version}"


def definition(name: str) -> Definition:
    """The environment called ``name``; RecipeError with the choices otherwise."""
    folder = environments_folder() / name
    dockerfile = folder / "Dockerfile"
    if "/" in name or not dockerfile.is_file():
        raise _unknown(name)
    labels = dict(_LABEL.findall(dockerfile.read_text(encoding="utf-8")))
    return Definition(
        name=name,
        folder=folder,
        version=_content_digest(folder)[:16],
        device=labels.get("device", "cpu"),
        architecture=labels.get("architecture", "x86_64"),
        topology_folder=labels.get("topology"),
    )


def environments_folder() -> Path:
    """``environments/`` of the checkout, or the copy inside the installed package."""
    package = Path(launcher.__file__).parent
    packaged = package / "_environments"
    return packaged if packaged.is_dir() else package.parent / "environments"


def environment_names() -> tuple[str, ...]:
    """Every environment that has a Dockerfile, sorted."""
    return tuple(sorted(path.parent.name for path in environments_folder().glob("*/Dockerfile")))


def _content_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(
        path for path in folder.rglob("*") if path.is_file() and path.name not in _NOT_PART_OF_THE_IMAGE
    ):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _unknown(name: str) -> RecipeError:
    known = environment_names()
    close = nearest(name, known)
    return RecipeError(
        f"there is no environment {name!r}",
        keys=("environment.name",),
        allowed=", ".join(known),
        suggestion=f"environment.name={close[0]}" if close else "environment.image=REGISTRY/IMAGE@sha256:...",
        code="azureml.environment",
    )
