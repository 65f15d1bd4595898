"""Where the present value of a key comes from: a file and line, the command line, or the default."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from launcher.recipe.redact import redact_override

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from launcher.compose.command_line import Override
    from launcher.compose.hydra_door import Layer
    from launcher.compose.yaml_guard import Document

COMMAND_LINE = "command line"
DEFAULT = "default"


@dataclass(frozen=True, kw_only=True)
class Origins:
    """Looks a key's origin up when an error is shown or ``launcher explain`` asks; costs nothing before."""

    overrides: tuple[Override, ...]
    documents: Mapping[str, Document]
    find_layers: Callable[[], tuple[Layer, ...]]
    """Hydra's merge order, computed on demand."""

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        return self.find_layers()

    def locate(self, key: str) -> str:
        """``recipes/model/gpt/13b.yaml:6``, ``command line: cluster.instance_count=16``, or ``default``."""
        position = self.position(key)
        if position >= len(self._layers):
            return f"{COMMAND_LINE}: {redact_override(self.overrides[position - len(self._layers)].typed)}"
        if position < 0:
            return DEFAULT
        layer = self._layers[position]
        return f"{self.documents[layer.config_path].shown}:{self._line(layer, key)}"

    def source(self, key: str) -> str:
        """The file that set a key, ``command line``, or ``default``."""
        return self.locate(key).split(":", 1)[0]

    def position(self, key: str) -> int:
        """When a key was last set: -1 for the default, then the files in merge order, then the words typed."""
        for index, override in reversed(list(enumerate(self.overrides))):
            if not override.is_choice and _is_at_or_below(key, override.key):
                return len(self._layers) + index
        for index, layer in reversed(list(enumerate(self._layers))):
            if self._line(layer, key) is not None:
                return index
        return -1

    def files(self) -> tuple[str, ...]:
        """The files that were merged, first to last."""
        return tuple(self.documents[layer.config_path].shown for layer in self._layers)

    def _line(self, layer: Layer, key: str) -> int | None:
        path = tuple(key.split("[", 1)[0].split("."))  # data.train[2] stands where data.train does
        package = tuple(layer.package.split(".")) if layer.package not in ("", "_global_") else ()
        if path[: len(package)] != package:
            return None
        return self.documents[layer.config_path].lines.get(path[len(package) :])


def _is_at_or_below(key: str, said: str) -> bool:
    return key == said or key.startswith((f"{said}.", f"{said}["))
