"""A folder of this machine as a versioned data asset: uploaded once, resumed when it broke off."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.backends.azureml.assets import register_data
from launcher.backends.azureml.mounts import RUNS_FOLDER
from launcher.backends.azureml.options import DEFAULT_DATASTORE
from launcher.backends.azureml.storage import open_folder
from launcher.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.backends.azureml.client import Client


@dataclass(frozen=True, kw_only=True)
class Upload:
    """What was uploaded, and how a recipe names it."""

    reference: str
    """``azureml:NAME:VERSION``."""
    files: int
    bytes: int
    """Of all files."""
    sent_bytes: int
    """Of those that were not there already."""


def upload(client: Client, source: Path, name: str, *, version: str | None, progress: Callable[[int], None]) -> Upload:
    """Upload ``source`` and register it; files that are there already, whole, are not sent again.

    Args:
        client: The workspace.
        source: A folder.
        name: Of the data asset.
        version: Of the data asset; from the files' names, sizes and times when None: the same folder, the same version.
        progress: Told the bytes of each file that is there now.

    Raises:
        BackendError: the folder is empty, or the service refuses.
    """
    files = sorted(path for path in source.rglob("*") if path.is_file())
    if not files:
        raise BackendError(f"{source} holds no files", code="azureml.data")
    version = version or _version(source, files)
    place = f"azureml://datastores/{DEFAULT_DATASTORE}/paths/{RUNS_FOLDER}/data/{name}/{version}"
    folder, sent = open_folder(client, place), 0
    there = {blob.path: blob.bytes for blob in folder.files()}
    for path in files:
        relative, size = path.relative_to(source).as_posix(), path.stat().st_size
        if there.get(relative) != size:
            folder.put(relative, path)
            sent += size
        progress(size)
    register_data(client, name, version, place)
    total = sum(path.stat().st_size for path in files)
    return Upload(reference=f"azureml:{name}:{version}", files=len(files), bytes=total, sent_bytes=sent)


def _version(source: Path, files: list[Path]) -> str:
    """Names, sizes and times: reading terabytes to name them would cost more than sending them."""
    lines = (f"{path.relative_to(source)} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files)
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:12]
