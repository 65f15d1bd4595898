"""Names and near misses: what a file, a key or a choice is called, and what was probably meant."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType


def names(package: ModuleType) -> tuple[str, ...]:
    """The modules of ``package`` by file name, sorted; nothing is imported. Leading underscores are private."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")))


def load(package: ModuleType, name: str) -> ModuleType:
    """Import the module ``name`` of ``package``."""
    return importlib.import_module(f"{package.__name__}.{name}")


def nearest(word: str, choices: Iterable[str], *, most: int = 3) -> tuple[str, ...]:
    """Up to ``most`` choices that look like ``word``, best first; empty if none is near."""
    import difflib

    by_lower = {choice.lower(): choice for choice in choices}
    found = difflib.get_close_matches(word.lower(), by_lower, n=most, cutoff=0.6)
    return tuple(by_lower[match] for match in found)
