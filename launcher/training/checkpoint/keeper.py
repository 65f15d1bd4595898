"""Saving and finding checkpoints, all ranks together."""

from __future__ import annotations

import logging
import secrets
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from launcher.training.checkpoint.manifest import (
    LATEST,
    MANIFEST,
    damage,
    folder_name,
    read_manifest,
    render,
    step_folders,
)
from launcher.training.checkpoint.restore import fill, open_shelf
from launcher.training.checkpoint.shard import write_shard
from launcher.training.checkpoint.storage import write_text
from launcher.training.errors import CheckpointError

if TYPE_CHECKING:
    from launcher.training.checkpoint.manifest import Manifest
    from launcher.training.checkpoint.storage import Written
    from launcher.training.engines.engine import Engine

log = logging.getLogger(__name__)


class Keeper:
    """The checkpoints of one run, in one directory that all ranks see."""

    def __init__(self, directory: Path, *, keep: int) -> None:
        """``keep``: how many of the newest stay."""
        self.directory, self.keep = directory, keep
        self.token = _agree(secrets.token_hex(3))
        self.leads = dist.get_rank() == 0

    def save(self, engine: Engine, manifest: Manifest) -> Path:
        """Write a checkpoint; it exists once every rank's file is whole and the manifest names them all.

        Raises:
            CheckpointError: a rank could not write; earlier checkpoints are untouched.
        """
        folder = self.directory / folder_name(manifest.step, self.token)
        faults = [fault for fault in _gather(self._prepare(folder)) if fault]
        written, fault = (None, None) if faults else self._write(engine, folder)
        results = _gather((written, fault))
        faults += [fault for _, fault in results if fault]
        if not faults and self.leads:
            faults += self._commit(folder, replace(manifest, files=tuple(file for file, _ in results if file)))
        faults = _agree(faults)
        if faults:
            raise CheckpointError(f"step {manifest.step} could not be saved: {'; '.join(faults)}")
        return folder

    def load(self, engine: Engine, *, elsewhere: Path | None = None) -> tuple[Path, Manifest] | None:
        """Fill ``engine`` from the newest checkpoint whose every byte is as it was written; None when there is none.

        This run's own come first, then those in ``elsewhere``. Damaged ones are named and passed over.
        """
        for directory in (self.directory, *([elsewhere] if elsewhere else [])):
            for folder in map(Path, _agree([str(path) for path in step_folders(directory)])):
                found = self._verify(folder)
                if found:
                    fill(engine.pieces(), open_shelf(folder / file.name for file in found.files))
                    engine.restored(found.step, found.scalars)
                    return folder, found
        return None

    def _prepare(self, folder: Path) -> str | None:
        if not self.leads:
            return None
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return str(error)
        return None

    def _write(self, engine: Engine, folder: Path) -> tuple[Written | None, str | None]:
        pieces = [piece for piece in engine.pieces() if piece.is_written]
        if not pieces:
            return None, None
        try:
            return write_shard(folder / f"rank-{dist.get_rank():05d}.safetensors", pieces), None
        except OSError as error:
            return None, f"rank {dist.get_rank()}: {error}"

    def _commit(self, folder: Path, manifest: Manifest) -> list[str]:
        """Make the folder a checkpoint by one rename, then forget the oldest."""
        try:
            write_text(folder / MANIFEST, render(manifest))
        except OSError as error:
            return [str(error)]
        try:
            write_text(self.directory / LATEST, folder.name + "\n")
            self._forget()
        except OSError as error:
            log.warning("step %d is saved, but older checkpoints could not be removed: %s", manifest.step, error)
        return []

    def _forget(self) -> None:
        """Remove all but the newest ``keep``, and what a killed writer left; the manifest goes first."""
        folders = step_folders(self.directory)
        whole = [folder for folder in folders if (folder / MANIFEST).is_file()]
        torn = [folder for folder in folders if folder not in whole]
        for folder in (*whole[self.keep :], *torn):
            (folder / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(folder)

    def _verify(self, folder: Path) -> Manifest | None:
        """The manifest, if all ranks together find every file whole; each reads its share."""
        manifest = read_manifest(folder)
        fault = "its manifest is torn or missing" if manifest is None else None
        if manifest is not None:
            fault = damage(folder, manifest.files[dist.get_rank() :: dist.get_world_size()])
        faults = [fault for fault in _gather(fault) if fault]
        if faults and self.leads:
            log.warning("checkpoint %s is passed over: %s", folder.name, faults[0])
        return None if faults else manifest


def _gather(value: Any) -> list[Any]:
    """Every rank's value, in rank order."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def _agree(value: Any) -> Any:
    """Rank 0's value, on every rank."""
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]
