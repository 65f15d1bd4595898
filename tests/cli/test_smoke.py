"""``launcher smoke``: its answer, its exit codes, and what it refuses to rehearse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher.cli.smoke import smoke_lines
from launcher.runs.smoke import Phase, Rehearsal, SmokeReport

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

REPORT = SmokeReport(
    recipe_name="gpt/175b",
    planned="tensor 8 x pipeline 8 x context 1 x data 16 = 1024",
    rehearsed="tensor 2 x pipeline 2 x context 1 x data 2 = 8",
    batch="1 micro x 2 data x 4 accumulation = 8 sequences",
    kept=("parallelism.engine fsdp", "parallelism.zero_stage 2"),
    folded=("ranks 1024 -> 8",),
    not_shown=("GPUs",),
    verdict="passed",
    rehearsal=Rehearsal(
        phases=(Phase(name="start, train, save", seconds=24.6), Phase(name="kill -9 one rank", seconds=0.4)),
        checkpoint_step=7,
        killed_rank=7,
        compared_steps=(8, 9),
        loss_first=6.2125,
        loss_last=4.5794,
    ),
)


def test_the_answer_says_what_ran_and_what_it_could_not_show() -> None:
    assert [click.unstyle(line) for line in smoke_lines(REPORT)] == [
        "passed  gpt/175b in 25 s",
        "",
        "planned               tensor 8 x pipeline 8 x context 1 x data 16 = 1024",
        "rehearsed             tensor 2 x pipeline 2 x context 1 x data 2 = 8",
        "batch                 1 micro x 2 data x 4 accumulation = 8 sequences",
        "start, train, save    24.6 s",
        "kill -9 one rank      0.40 s",
        "resumed               after step 7, rank 7 having been killed; steps 8 to 9 taken twice, with equal losses",
        "loss                  6.213 -> 4.579",
        "",
        "kept         parallelism.engine fsdp",
        "             parallelism.zero_stage 2",
        "folded       ranks 1024 -> 8",
        "not shown    GPUs",
    ]


def test_a_failed_rehearsal_exits_1_with_reason_and_log_in_its_document(cli: Cli) -> None:
    # Python does not find itself there: the quickest death of a rank.
    outcome = cli("smoke", "gpt/tiny", "environment.variables.PYTHONHOME=/nowhere", "--processes", "1", "--json")

    assert outcome.code == 1
    assert outcome.document["verdict"] == "failed"
    assert "rank 0" in outcome.document["reason"]
    assert outcome.document["log"].endswith("logs/rank-00000.log")
    assert outcome.document["planned"].endswith("data 2 = 2")
    assert outcome.document["rehearsed"].endswith("data 1 = 1")
    assert "data parallelism: takes more than 1 ranks" in outcome.document["not_shown"]


def test_without_a_recipe_the_verb_asks_which(cli: Cli) -> None:
    outcome = cli("smoke")

    assert outcome.code == 2
    assert "which recipe?" in outcome.err


def test_a_recipe_whose_plan_has_errors_is_refused_before_folding_hides_them(cli: Cli) -> None:
    # Folded, it would be 2-way tensor parallelism of 2 heads.
    outcome = cli("smoke", "gpt/125m", "parallelism=tensor8")

    assert outcome.code == 3
    assert "8-way tensor parallelism does not divide 12 attention heads" in outcome.err


def test_a_script_of_ones_own_is_refused(cli: Cli) -> None:
    outcome = cli("smoke", "gpt/tiny", "entry.script=train.py")

    assert outcome.code == 3
    assert "train.py is a script of your own" in outcome.err
