"""References between keys: ``${model.vocab_size}``; and Azure ML's own ``${{inputs.corpus}}``, which is kept as it is.

Hydra and OmegaConf never see a ``${``: it is hidden before composing and resolved here afterwards, so no resolver
(``${oc.env:HOME}``) can run, whatever a recipe says, and no chain of references can grow without bound.
"""

from __future__ import annotations

import re
from typing import Any

from launcher.errors import Fault, RecipeError
from launcher.recipe.fields import as_text
from launcher.registry import nearest

LONGEST = 65536
"""Characters a value may have once its references are filled in."""
DEEPEST = 64
"""Keys a reference may lead through."""

_PIECE = re.compile(r"\\\$\{|\$\{\{.*?\}\}|\$\{(?P<key>[^{}]*)\}|\$\{")
_KEY = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*")
_HIDDEN = re.compile(r"launcher_hidden_((?:[0-9a-f]{2})+)_")


def refusals(text: str) -> list[str]:
    """What is wrong with the references in ``text``, a sentence each."""
    return [reason for match in _PIECE.finditer(text) if (reason := _refusal(match))]


def _refusal(match: re.Match[str]) -> str | None:
    piece, key = match[0], match["key"]
    if piece.startswith(("\\", "${{")) or (key is not None and _KEY.fullmatch(key)):
        return None
    if ":" in (key or ""):
        return f"{piece} calls a resolver; recipes are data"
    return f"{piece} is not a reference to a key"


def hide(text: str) -> str:
    """``text`` with each piece that starts with ``${`` as one harmless word."""
    return _PIECE.sub(lambda match: f"launcher_hidden_{match[0].encode().hex()}_", text) if "${" in text else text


def reveal(value: Any) -> Any:
    """Plain data with hidden pieces as they were written."""
    if isinstance(value, str):
        return _HIDDEN.sub(lambda match: bytes.fromhex(match[1]).decode(errors="replace"), value)
    if isinstance(value, dict):
        return {reveal(name): reveal(item) for name, item in value.items()}
    return [reveal(item) for item in value] if isinstance(value, list) else value


def resolve(tree: dict[str, Any]) -> dict[str, Any]:
    """The tree with every ``${key}`` replaced by the value at that key.

    Raises:
        RecipeError: for each reference to no key, to a section, to itself, or that grows too long.
    """
    resolver = _Resolver(tree)
    resolved = {name: resolver.value(item, name) for name, item in tree.items()}
    if resolver.faults:
        raise RecipeError(list(dict.fromkeys(resolver.faults)))
    return resolved


class _Resolver:
    """Fills references depth first, remembering what it filled and what it is filling."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self.tree = tree
        self.faults: list[Fault] = []
        self.done: dict[str, Any] = {}
        self.open: list[str] = []

    def value(self, value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {name: self.value(item, f"{key}.{name}") for name, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, key) for item in value]
        return self._text(value, key) if isinstance(value, str) and "${" in value else value

    def _text(self, text: str, key: str) -> Any:
        whole = _PIECE.fullmatch(text)
        if whole and whole["key"] is not None:
            return self._target(whole, key)
        filled, end = "", 0
        for match in _PIECE.finditer(text):
            filled += text[end : match.start()] + str(self._piece(match, key))
            end = match.end()
            if len(filled) > LONGEST:
                return self._refuse(key, f"{key} is longer than {LONGEST} characters once its references are filled in")
        return filled + text[end:]

    def _piece(self, match: re.Match[str], key: str) -> Any:
        if match[0].startswith("\\"):
            return match[0][1:]
        return match[0] if match["key"] is None else as_text(self._target(match, key))

    def _target(self, match: re.Match[str], key: str) -> Any:
        target = match["key"]
        for reason in refusals(match[0]):
            return self._refuse(key, reason)
        if target in self.open:
            return self._refuse(key, f"{key} refers to itself: {' -> '.join([*self.open, target])}")
        if len(self.open) == DEEPEST:
            return self._refuse(key, f"{key} refers through more than {DEEPEST} keys")
        if target not in self.done:
            self.open.append(target)
            self.done[target] = self._look_up(target, key)
            self.open.pop()
        return self.done[target]

    def _look_up(self, target: str, key: str) -> Any:
        value: Any = self.tree
        for name in target.split("."):
            if not isinstance(value, dict) or name not in value or value[name] == "???":
                near = nearest(target, _leaves(self.tree, ""), most=1)
                return self._refuse(key, f"{key} refers to ${{{target}}}, which is not set", *near)
            value = value[name]
        if isinstance(value, dict | list):
            return self._refuse(key, f"{key} refers to ${{{target}}}, which is not a single value")
        return self.value(value, target)

    def _refuse(self, key: str, what: str, *near: str) -> str:
        suggestion = f"did you mean ${{{near[0]}}}?" if near else None
        self.faults.append(Fault(what=what, keys=(key,), suggestion=suggestion, code="recipe.reference"))
        return ""


def _leaves(value: Any, prefix: str) -> list[str]:
    if not isinstance(value, dict):
        return [prefix]
    return [leaf for name, item in value.items() for leaf in _leaves(item, f"{prefix}.{name}" if prefix else name)]
