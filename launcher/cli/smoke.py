"""``launcher smoke``: a recipe's topology folded small, trained, killed and resumed on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher.cli import terminal
from launcher.cli.invocation import Invocation, Verb
from launcher.cli.plan import refusal
from launcher.cli.recipe_words import compose_words, recipe_words
from launcher.errors import ExitCode, UsageError
from launcher.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.recipe.schema import Recipe
    from launcher.runs.smoke import Rehearsal, SmokeReport


@click.command(cls=Verb)
@recipe_words
@click.option("--processes", type=click.IntRange(min=1), default=8, show_default=True, help="Ranks to run at most.")
@click.pass_obj
def command(invocation: Invocation, words: tuple[str, ...], recipe_dirs: tuple[Path, ...], processes: int) -> None:
    """Rehearse a recipe of any size here: every parallel axis as 2, on CPU processes that train, die and resume.

    launcher smoke gpt/175b
    launcher smoke mixtral/8x7b parallelism.expert_parallel_size=8 --processes 4
    """
    from launcher.runs.smoke import encode, smoke

    recipe = _asked(invocation, words, recipe_dirs)
    report = smoke(recipe, processes=processes, root=Path.cwd())
    invocation.answer(encode(report), lambda: "\n".join(smoke_lines(report)))
    if report.verdict == "failed":
        raise click.exceptions.Exit(ExitCode.RUN_FAILED)


def _asked(invocation: Invocation, words: tuple[str, ...], recipe_dirs: tuple[Path, ...]) -> Recipe:
    """The recipe of the words, once its plan has no errors: folding would hide a tensor size that divides no heads.

    Raises:
        UsageError: no recipe is given.
        PlanError: its plan has errors.
    """
    from launcher.plan.planner import make_plan

    if not words:
        raise UsageError("which recipe?", suggestion="launcher smoke gpt/tiny\nlauncher recipes")
    recipe = compose_words(invocation, words, recipe_dirs).recipe
    refused = refusal(make_plan(recipe), over_budget=True)
    if refused is not None:
        raise refused
    return recipe


def smoke_lines(report: SmokeReport) -> list[str]:
    """The verdict, what ran, how long each phase took, and what was kept, folded and not shown."""
    passed = report.verdict == "passed"
    verdict = terminal.green("passed") if passed else terminal.red("failed")
    return [
        f"{verdict}  {report.recipe_name} in {format_seconds(report.seconds)}",
        *_failure(report.rehearsal),
        "",
        *terminal.table([*_facts(report)], gap=4),
        "",
        *terminal.table(
            [*_blocks({"kept": report.kept, "folded": report.folded, "not shown": report.not_shown})], gap=4
        ),
    ]


def _failure(rehearsal: Rehearsal) -> Iterator[str]:
    if rehearsal.reason is not None:
        yield from terminal.wrapped(f"reason    {rehearsal.reason}", terminal.width(), indent=" " * 10)
    if rehearsal.log is not None:
        yield f"log       {rehearsal.log}"


def _facts(report: SmokeReport) -> Iterator[tuple[str, str]]:
    done = report.rehearsal
    yield "planned", report.planned
    yield "rehearsed", report.rehearsed
    yield "batch", report.batch
    for phase in done.phases:
        yield phase.name, format_seconds(phase.seconds)
    if done.compared_steps:
        twice = f"steps {done.compared_steps[0]} to {done.compared_steps[-1]} taken twice, with equal losses"
        yield "resumed", f"after step {done.checkpoint_step}, rank {done.killed_rank} having been killed; {twice}"
    if done.loss_first is not None and done.loss_last is not None:
        yield "loss", f"{done.loss_first:.3f} -> {done.loss_last:.3f}"


def _blocks(blocks: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    for title, lines in blocks.items():
        for number, line in enumerate(lines):
            yield "" if number else terminal.dim(title), line
