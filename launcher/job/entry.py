"""What each rank runs: the built-in trainer, or a team's own script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.rules.entry import is_launcher

if TYPE_CHECKING:
    from launcher.recipe.schema import Entry

TRAINER = ("python", "-m", "launcher.training", "{job}", "--output", "{output}")


def command(entry: Entry) -> tuple[str, ...]:
    """The argv of every rank; ``{job}`` and ``{output}`` in it are paths the backend fills in."""
    if entry.script is None:
        return TRAINER
    interpreter = () if is_launcher(entry.script) else ("python",)
    return (*interpreter, entry.script, *entry.arguments)
