"""Corpora prepared once and kept: named by what they were made from, made by one process while the others wait."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import filelock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def cached_folder(cache: Path, settings: dict[str, Any], make: Callable[[Path], object]) -> Path:
    """The folder of ``cache`` for ``settings``, filled by ``make`` if it is not there yet.

    Safe for any number of processes at once: one fills a folder beside it and renames that into place, the others wait;
    if it dies on the way, the next one starts over.
    """
    name = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]
    folder = cache / name
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(cache / f"{name}.lock"):
        if not folder.is_dir():
            _fill(folder, make)
    return folder


def _fill(folder: Path, make: Callable[[Path], object]) -> None:
    for abandoned in folder.parent.glob(f"{folder.name}.partial-*"):
        shutil.rmtree(abandoned)
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    partial.mkdir()
    make(partial)
    partial.rename(folder)
