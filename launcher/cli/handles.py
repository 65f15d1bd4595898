"""Handles of runs on the command line: ``local:NAME``, a beginning of it, or ``latest``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

    from launcher.cli.invocation import Invocation
    from launcher.training.weights import Checkpoint

Function = TypeVar("Function", bound="Callable[..., Any]")


def handle_argument(*, required: bool) -> Callable[[Function], Function]:
    """Add ``handle``; when it is not required, the newest run is meant."""
    metavar = "HANDLE" if required else "[HANDLE]"
    return click.argument("handle", metavar=metavar, required=required, shell_complete=_complete)


def resolve_handle(invocation: Invocation, text: str | None) -> str:
    """The handle meant by ``text``; which one ``latest`` is gets said.

    Raises:
        NoSuchRunError: no run is meant by it, or more than one.
    """
    from launcher.runs import journal

    handle = journal.resolve(text or journal.LATEST)
    if text in {None, journal.LATEST}:
        invocation.say(f"latest is {handle}")
    return handle


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A run's newest checkpoint, opened."""

    handle: str
    """Or the folder, as it was given."""
    opened: Checkpoint

    @property
    def name(self) -> str:
        """For files that are made of it."""
        return Path(self.handle).resolve().name if Path(self.handle).is_dir() else self.handle.partition(":")[2]


def trained_options(function: Function) -> Function:
    """Add ``handle`` of a run, or a folder of checkpoints, and ``base``."""
    option = click.option(
        "--base", metavar="SOURCE", help="Where a LoRA run's frozen weights lie, if not where they did."
    )
    return handle_argument(required=True)(option(function))


def open_trained(invocation: Invocation, text: str, *, base: str | None) -> Trained:
    """The newest checkpoint of a run, which is fetched if it is not here; or of a folder.

    Raises:
        NoSuchRunError: no run is meant by it.
        CheckpointError: it left no whole checkpoint.
    """
    from launcher.runs.trained import checkpoints_folder
    from launcher.training.weights import open_checkpoint
    from launcher.units import format_bytes

    handle = text if Path(text).is_dir() else resolve_handle(invocation, text)
    done = 0

    def progress(size: int) -> None:
        nonlocal done
        done += size
        invocation.progress(f"fetched {format_bytes(done)}")

    folder = checkpoints_folder(handle, progress=progress)
    invocation.end_progress()
    return Trained(handle=handle, opened=open_checkpoint(folder, base=base))


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from launcher.runs import journal

    handles = (journal.LATEST, *(row.handle for row in journal.rows()))
    return [CompletionItem(handle) for handle in handles if handle.startswith(incomplete)]
