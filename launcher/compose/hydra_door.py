"""The one place that talks to Hydra: choices and overrides in, one merged plain tree out.

Hydra reads through ``RecipeSource``, so it sees only what ``yaml_guard`` let pass, and never our frozen dataclasses
(they would make its nodes read-only): legal keys are checked before, types after. No plugin is discovered, no output
folder is made, and the process's own Hydra state, if any, is left as it was.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from hydra import compose, version
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict

from launcher.compose import library, references
from launcher.compose.reading import CONFIG, WHOLE, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hydra.core.config_loader import ConfigLoader

_reading: ContextVar[Reading] = ContextVar("reading")


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What Hydra made of the choices and overrides."""

    tree: dict[str, Any]
    """Plain data: what the files and the command line say, without defaults."""
    choices: dict[str, str | None]
    """Group -> what was chosen in it; None for no choice."""
    loader: ConfigLoader
    """Hydra's own loader, which can say in which order files were merged."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A file in merge order, and the section its content went to."""

    config_path: str
    package: str


class RecipeSource(ConfigSource):  # type: ignore[misc]  # hydra carries no types
    """Hydra's view of the reading in progress; the search path and its order are ours."""

    @staticmethod
    def scheme() -> str:
        """How Hydra's search path names this source."""
        return "recipes"

    def available(self) -> bool:
        """The folders were checked before."""
        return True

    def is_group(self, config_path: str) -> bool:
        """Whether a folder of that name exists along the search path."""
        return bool(config_path) and any((root / config_path).is_dir() for root in _reading.get().roots)

    def is_config(self, config_path: str) -> bool:
        """Whether a file of that name exists along the search path."""
        return _reading.get().has(config_path.removesuffix(".yaml"))

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """The choices of a group, for Hydra's own messages."""
        if results_filter is ObjectType.GROUP:
            return []
        return list(library.choice_names(config_path, _reading.get().roots))

    def load_config(self, config_path: str) -> ConfigResult:
        """A file's content, and the section it belongs to."""
        name = config_path.removesuffix(".yaml")
        document = _reading.get().document(name)
        package = WHOLE if name.startswith(f"{library.RECIPE_GROUP}/") else document.header
        return ConfigResult(
            provider=self.provider,
            path=self.path,
            config=OmegaConf.create(document.content),
            header={"package": package},
        )


def merge(reading: Reading, overrides: Sequence[str]) -> Merged:
    """Composes ``config`` with the overrides.

    Raises:
        RecipeError: a file that was read is refused.
        hydra.errors.HydraException: the choices and overrides do not compose.
    """
    with _hydra(reading) as loader:
        config = compose(CONFIG, list(overrides), return_hydra_config=True)
        choices = {
            group: name for group, name in config.hydra.runtime.choices.items() if not group.startswith("hydra/")
        }
        with open_dict(config):
            del config["hydra"]
        tree: Any = OmegaConf.to_container(config, resolve=False)
    return Merged(tree=references.reveal(tree), choices=choices, loader=loader)


def layers(reading: Reading, merged: Merged, overrides: Sequence[str]) -> tuple[Layer, ...]:
    """The files of a composition in the order they were merged, later over earlier."""
    with _active(reading):
        found = merged.loader.compute_defaults_list(CONFIG, list(overrides), RunMode.RUN)
    return tuple(
        Layer(config_path=default.config_path, package=default.package or "")
        for default in found.defaults
        if default.config_path in reading.documents
    )


@contextmanager
def _hydra(reading: Reading) -> Iterator[ConfigLoader]:
    _register()
    search_path = ConfigSearchPathImpl()
    search_path.append("hydra", "pkg://hydra.conf")
    search_path.append("main", f"{RecipeSource.scheme()}://")
    search_path.append("schema", "structured://")
    state = GlobalHydra.instance()
    before, state.hydra = state.hydra, None
    try:
        with _active(reading):
            yield Hydra.create_main_hydra2("launcher", search_path).config_loader
    finally:
        state.hydra = before


@contextmanager
def _active(reading: Reading) -> Iterator[None]:
    token = _reading.set(reading)
    try:
        yield
    finally:
        _reading.reset(token)


@cache
def _register() -> None:
    """Once a process: our source, and Hydra's own plugins but nobody else's.

    Hydra imports every module of a ``hydra_plugins`` package it can find, one in the working directory included.
    """
    version.setbase("1.3")
    others = sys.modules.get("hydra_plugins")
    sys.modules["hydra_plugins"] = None  # type: ignore[assignment]  # Python's way to say: not importable
    try:
        Plugins.instance().register(RecipeSource)
    finally:
        if others is None:
            del sys.modules["hydra_plugins"]
        else:
            sys.modules["hydra_plugins"] = others
