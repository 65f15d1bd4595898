"""What a shell may complete a word to: recipes, keys, choices of a group, values of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

from launcher.recipe.keys import all_keys, find_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


def recipe_candidates(incomplete: str, recipe_dirs: Sequence[Path]) -> list[CompletionItem]:
    """Of ``[RECIPE] [KEY=VALUE]``: ``gpt/13b``, ``cluster=``, ``cluster=nd_h100_v5``, ``training.precision=bf16``."""
    from launcher.compose.library import choice_names, groups, recipe_names, search_path

    key, equals, value = incomplete.partition("=")
    roots = search_path(recipe_dirs)
    if not equals:
        assignments = {f"{name}=": "a choice" for name in groups(roots)} | {
            f"{name}=": text for name, text in _meanings()
        }
        return _items(dict.fromkeys(recipe_names(recipe_dirs), "a recipe") | assignments, incomplete)
    values = choice_names(key, roots) if key in groups(roots) else _values(key)
    return _items({f"{key}={choice}": "" for choice in values if choice.startswith(value)}, incomplete)


def key_candidates(incomplete: str) -> list[CompletionItem]:
    """Keys that begin with ``incomplete``."""
    return _items(dict(_meanings()), incomplete)


def _values(path: str) -> tuple[str, ...]:
    key = find_key(path)
    if key is None:
        return ()
    return ("true", "false") if key.type == "bool" else key.choices


def _meanings() -> Iterable[tuple[str, str]]:
    return ((key.path, key.meaning.splitlines()[0]) for key in all_keys())


def _items(candidates: dict[str, str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word, help=text or None) for word, text in candidates.items() if word.startswith(incomplete)]
