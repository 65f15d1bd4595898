"""``launcher plan --resume``: the checkpoint beside the recipe that is to go on from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.cli import terminal
from launcher.cli.handles import resolve_handle
from launcher.cli.places import format_value
from launcher.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.cli.invocation import Invocation
    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe
    from launcher.runs.continuation import Continuation


def resumption(invocation: Invocation, source: str, recipe: Recipe, plan: Plan) -> Continuation:
    """How ``recipe`` goes on from the run or the folder that ``source`` names.

    Raises:
        NoSuchRunError: it names neither.
        UsageError: the folder holds no checkpoint.
        RunFailedError: the run left none.
    """
    from launcher.runs.continuation import continuation, continuation_of

    folder = Path(source)
    if not folder.is_dir():
        return continuation_of(resolve_handle(invocation, source), recipe, plan)
    found = continuation(folder, recipe, plan)
    if found is None:
        raise UsageError(f"{folder} holds no checkpoint", allowed="a run, or a folder of checkpoints")
    return found


def resumption_document(found: Continuation) -> dict[str, Any]:
    """``{checkpoint, step, train_steps, written_by, read_by, is_resharded, is_readable, changes[]}``."""
    return {
        "checkpoint": None if found.checkpoint is None else str(found.checkpoint),
        "step": found.step,
        "train_steps": found.train_steps,
        "written_by": found.written_by,
        "read_by": found.read_by,
        "is_resharded": found.is_resharded,
        "is_readable": not found.faults,
        "changes": [
            {"key": change.key, "tag": change.tag, "left": change.left, "right": change.right}
            for change in found.changes
        ],
    }


def resumption_lines(found: Continuation) -> list[str]:
    """What a person reads under the plan."""
    lines: list[str] = []
    for label, texts in _rows(found):
        lines += terminal.labelled(label, texts, size=11)
    return ["", *lines]


def _rows(found: Continuation) -> Iterator[tuple[str, list[str]]]:
    goes_on = f"{found.step + 1} of {found.train_steps}" if found.step is not None else "told when the job starts"
    yield "resume", [str(found.checkpoint or "the run's newest checkpoint, which the job will find")]
    yield "next step", [goes_on]
    if found.is_resharded:
        yield "written by", [found.written_by]
        yield "read by", [f"{found.read_by}: every rank reads the elements it holds"]
    else:
        yield "layout", [f"{found.read_by}: as it was written, bit for bit"]
    changed = [f"{change.key}: {format_value(change.left)} -> {format_value(change.right)}" for change in found.changes]
    learnt = [text for text, change in zip(changed, found.changes, strict=True) if change.tag == "convergence"]
    yield "learns", learnt or ["the same: no key that changes what is learnt differs"]
