"""``launcher evaluate``: a run's loss on text it has not seen."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher.cli import terminal
from launcher.cli.handles import open_trained, trained_options
from launcher.cli.invocation import Verb

if TYPE_CHECKING:
    from launcher.cli.handles import Trained
    from launcher.cli.invocation import Invocation
    from launcher.training.evaluate import Evaluation, Score


@click.command(cls=Verb)
@trained_options
@click.option(
    "--validation", multiple=True, metavar="CORPUS", help="Text or shards instead of what the recipe holds out."
)
@click.option("--batches", type=click.IntRange(min=0), default=0, help="Most batches of 8 sequences; 0 reads all.")
@click.option("--task", "tasks", multiple=True, metavar="NAME", help="Of lm-evaluation-harness, its data being here.")
@click.option(
    "--task-folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Of more task files."
)
@click.option("--limit", type=click.IntRange(min=1), help="Most documents of a task.")
@click.pass_obj
def command(
    invocation: Invocation,
    handle: str,
    base: str | None,
    validation: tuple[str, ...],
    batches: int,
    tasks: tuple[str, ...],
    task_folder: Path | None,
    limit: int | None,
) -> None:
    """Measure a run's newest checkpoint: loss and perplexity on held-out text, or tasks of lm-evaluation-harness.

    launcher evaluate latest
    launcher evaluate latest --validation books.jsonl --batches 50
    launcher evaluate latest --task arc_easy --task hellaswag --limit 200
    """
    trained = open_trained(invocation, handle, base=base)
    if tasks:
        from launcher.training.evaluate import run_tasks

        scores = run_tasks(trained.opened, tasks, folder=task_folder, limit=limit)
        found: list[Evaluation] = []
    else:
        scores, found = [], _held_out(trained, validation, batches)
    document = {
        "handle": trained.handle,
        "step": trained.opened.step,
        "corpora": [asdict(evaluation) for evaluation in found],
        "tasks": [asdict(score) for score in scores],
    }
    invocation.answer(document, lambda: "\n".join(_lines(trained, found, scores)))


def _held_out(trained: Trained, validation: tuple[str, ...], batches: int) -> list[Evaluation]:
    from launcher.home import cache_folder
    from launcher.runs.trained import held_out
    from launcher.training.evaluate import evaluate

    data = held_out(trained.handle, trained.opened.recipe.data, validation)
    return evaluate(trained.opened, data, cache=cache_folder(), batches=batches)


def _lines(trained: Trained, found: list[Evaluation], scores: list[Score]) -> list[str]:
    header: tuple[str, ...] = ("corpus", "tokens", "loss", "perplexity")
    rows: list[tuple[str, ...]] = [
        (each.corpus, f"{each.tokens:,}", f"{each.loss:.4f}", f"{each.perplexity:,.2f}") for each in found
    ]
    if scores:
        header, rows = ("task", "metric", "value"), [(each.task, each.metric, f"{each.value:.4f}") for each in scores]
    return [f"{trained.handle} after step {trained.opened.step:,}", "", *terminal.titled_table(header, rows)]
