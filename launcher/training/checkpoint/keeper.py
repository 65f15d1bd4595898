"""Saving and finding checkpoints, all ranks together."""

from __future__ import annotations

import logging
import secrets
import shutil
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from launcher.training.checkpoint.manifest import (
    LATEST,
    MANIFEST,
    WRITER,
    damage,
    folder_name,
    read_manifest,
    render,
    step_folders,
)
from launcher.training.checkpoint.restore import fill, open_shelf
from launcher.training.checkpoint.shard import write_shard
from launcher.training.checkpoint.storage import write_text
from launcher.training.checkpoint.universal import open_universal, universal_step
from launcher.training.checkpoint.universal_folder import find_universal
from launcher.training.errors import CheckpointError, SupersededError

if TYPE_CHECKING:
    from launcher.training.checkpoint.manifest import Manifest
    from launcher.training.checkpoint.storage import Written
    from launcher.training.engines.engine import Engine
    from launcher.training.pieces import Piece

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Pending:
    """A checkpoint on its way to the disk."""

    folder: Path
    manifest: Manifest
    written: Future[tuple[Written | None, str | None]]
    """This rank's file, or why there is none."""


class Keeper:
    """The checkpoints of one run, in one directory that all ranks see.

    Saving copies the state aside, writes it from a thread while training goes on, and commits at a later step edge.
    """

    def __init__(self, directory: Path, *, keep: int) -> None:
        """``keep``: how many of the newest stay."""
        self.directory, self.keep = directory, keep
        self.token: str = _agree(secrets.token_hex(3))
        self.leads = dist.get_rank() == 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: _Pending | None = None

    def claim(self) -> None:
        """Say that this attempt writes here from now on: an older one that still runs will not commit any more."""
        if self.leads:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_text(self.directory / WRITER, self.token + "\n")

    def begin(self, engine: Engine, manifest: Manifest) -> None:
        """Copy the state aside and start writing it; training may go on at once."""
        assert self._pending is None
        folder = self.directory / folder_name(manifest.step, self.token)
        pieces = [_copied(piece) for piece in engine.pieces() if piece.is_written]
        future = self._thread.submit(_write, folder, pieces, dist.get_rank())
        self._pending = _Pending(folder=folder, manifest=manifest, written=future)

    @property
    def is_written(self) -> bool:
        """Whether this rank's part of a begun checkpoint is on the disk."""
        return self._pending is not None and self._pending.written.done()

    def is_free(self, *, within: float) -> bool:
        """Whether nothing is on its way to the disk any more, on any rank, after waiting at most ``within`` seconds."""
        if self._pending is None:
            return True
        wait([self._pending.written], timeout=within)
        return all(_gather(self.is_written))

    def finish(self) -> Path | None:
        """Commit what was begun, once every rank's file is whole; None when nothing was.

        Raises:
            CheckpointError: a rank could not write; earlier checkpoints are untouched.
            SupersededError: another attempt has claimed the directory.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return None
        results = _gather(pending.written.result())
        faults = [fault for _, fault in results if fault]
        is_ours = _agree(self._is_ours())
        if not faults and self.leads and is_ours:
            files = tuple(file for file, _ in results if file)
            faults = self._commit(pending.folder, replace(pending.manifest, files=files))
        faults = _agree(faults)
        if not is_ours:
            raise SupersededError(f"another attempt of this run writes to {self.directory} now; this one ends")
        if faults:
            raise CheckpointError(f"step {pending.manifest.step} could not be saved: {'; '.join(faults)}")
        return pending.folder

    def save(self, engine: Engine, manifest: Manifest) -> Path:
        """Write a checkpoint and wait until it is there; see ``finish``."""
        self.begin(engine, manifest)
        folder = self.finish()
        assert folder is not None
        return folder

    def load(self, engine: Engine, *, elsewhere: Path | None = None) -> tuple[Path, Manifest] | None:
        """Fill ``engine`` from the newest checkpoint whose every byte is as it was written; None when there is none.

        This run's own come first, then those in ``elsewhere``. Damaged ones are named and passed over.
        """
        for directory in (self.directory, *([elsewhere] if elsewhere else [])):
            for folder in map(Path, _agree([str(path) for path in step_folders(directory)])):
                found = self._verify(folder)
                if found:
                    fill(
                        (piece for piece in engine.pieces() if piece.is_trained),
                        open_shelf(folder / file.name for file in found.files),
                    )
                    engine.restored(found.updates, found.scalars)
                    return folder, found
        return None

    def load_universal(self, engine: Engine, directory: Path) -> tuple[Path, int] | None:
        """Fill ``engine`` from DeepSpeed's universal checkpoint in ``directory``; its folder and step, or None."""
        folder = find_universal(directory)
        if folder is None:
            return None
        step = universal_step(folder)
        fill(engine.pieces(), open_universal(folder))
        engine.restored(step, {})
        return folder, step

    def _is_ours(self) -> bool:
        try:
            return (self.directory / WRITER).read_text().strip() == self.token
        except OSError:
            return True  # no word of anybody else; the commit will say what is wrong with the disk

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


def _copied(piece: Piece) -> Piece:
    """The piece as it is now, in memory that training does not touch."""
    return replace(piece, tensor=piece.tensor.detach().to("cpu", copy=True))


def _write(folder: Path, pieces: list[Piece], rank: int) -> tuple[Written | None, str | None]:
    """This rank's file, or why there is none."""
    if not pieces:
        return None, None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return write_shard(folder / f"rank-{rank:05d}.safetensors", pieces), None
    except OSError as error:
        return None, f"rank {rank}: {error}"


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
