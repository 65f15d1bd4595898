"""Where a universal checkpoint of DeepSpeed's keeps its parameters; names and folders only, without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

POINTER = "latest_universal"
_PARAMETERS = "zero"
_WRAPPER = "module."
"""What DDP and DeepSpeed's engine put before a parameter's name."""


def find_universal(directory: Path) -> Path | None:
    """The universal checkpoint in ``directory``, or that is ``directory``; None when there is none."""
    pointer = directory / POINTER
    folder = directory / pointer.read_text(encoding="utf-8").strip() if pointer.is_file() else directory
    return folder if any((folder / _PARAMETERS).glob("*/fp32.pt")) else None


def parameter_folders(folder: Path) -> dict[str, Path]:
    """The folder of each parameter, by its name in the model."""
    places = sorted(path.parent for path in (folder / _PARAMETERS).glob("*/fp32.pt"))
    return {place.name.removeprefix(_WRAPPER): place for place in places}
