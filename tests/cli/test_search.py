"""What ``launcher search`` answers, and what may be pasted from it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from launcher.cli.search import parse_duration, parse_instances
from launcher.errors import UsageError

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

LLAMA = ("llama2/7b", "checkpoint.interval_steps=500")


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("16", (16,)),
        ("8,32,16", (8, 16, 32)),
        ("8..128", (8, 16, 32, 64, 128)),
        ("8..100", (8, 16, 32, 64, 100)),
        ("8..32..8", (8, 16, 24, 32)),
        ("1..2,9", (1, 2, 9)),
    ],
)
def test_instances_are_a_number_a_list_or_a_range(text: str, counts: tuple[int, ...]) -> None:
    assert parse_instances(text) == counts


@pytest.mark.parametrize("text", ["", "0", "8..", "16..8", "8..16..0", "many", "-1", "1.5", "100001"])
def test_other_instances_are_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(UsageError, match="no number of VMs") as refused:
        parse_instances(text)

    assert "8..128 (doubling)" in (refused.value.faults[0].allowed or "")


@pytest.mark.parametrize(("text", "seconds"), [("10d", 864_000), ("36h", 129_600), ("90m", 5_400), ("1.5d", 129_600)])
def test_a_deadline_has_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["10", "d", "0d", "-1d", "10 weeks"])
def test_a_deadline_without_one_is_refused(cli: Cli, text: str) -> None:
    outcome = cli("search", *LLAMA, "--deadline", text)

    assert outcome.code == 2
    assert f"--deadline {text} is no time" in outcome.err
    assert "--deadline 10d" in outcome.err


def test_every_result_pasted_into_plan_is_accepted_and_takes_as_long(cli: Cli) -> None:
    found = cli("search", *LLAMA, "--clusters", "nd_h100_v5,nd_a100_v4", "--instances", "2..4", "--json").document

    assert found["candidates"] > found["evaluated"] > 0
    assert len(found["results"]) == 10
    for result in (*found["results"][:3], *found["frontier"]):
        outcome = cli("plan", *LLAMA, *result["overrides"], "--json")

        assert outcome.code == 0
        assert outcome.document["time"]["step_seconds"] == pytest.approx(result["step_seconds"], rel=1e-9)
        assert outcome.document["memory"]["bytes_per_gpu"] == result["memory_bytes"]
        assert outcome.document["cost"]["dollars"] == pytest.approx(result["dollars"])


def test_the_printed_command_plans_the_first_result(cli: Cli) -> None:
    words = (*LLAMA, "training.micro_batch_size=4")
    asked = ("--clusters", "nd_h100_v5", "--instances", "2")
    best = cli("search", *words, *asked, "--json").document["results"][0]

    printed = cli("search", *words, *asked).out
    block = printed[printed.index("launcher plan") :].split("\n\n")[0]
    pasted = shlex.split(block.replace("\\\n", " "))[1:]
    planned = cli(*pasted, "--json").document

    assert planned["time"]["step_seconds"] == pytest.approx(best["step_seconds"], rel=1e-9)
    assert len([word for word in pasted if word.startswith("training.micro_batch_size=")]) <= 1


def test_without_clusters_the_recipes_own_is_searched_at_its_own_count(cli: Cli) -> None:
    found = cli("search", *LLAMA, "cluster=nd_h100_v5", "cluster.instance_count=2", "--json").document

    assert {(each["cluster"], each["instance_count"]) for each in found["results"]} == {("nd_h100_v5", 2)}
    assert all(each.split("=")[0] != "cluster" for each in found["results"][0]["overrides"])


def test_a_deadline_no_node_count_meets_says_how_many_tokens_there_is_time_for(cli: Cli) -> None:
    outcome = cli("search", *LLAMA, "--clusters", "nd_h100_v5", "--instances", "2", "--deadline", "1h")

    assert outcome.code == 0
    assert "nothing found inside the limits" in outcome.out
    assert "tokens do not fit 60 min on nd_h100_v5: 2 x nd_h100_v5 (16 ranks) get furthest" in " ".join(
        outcome.out.split()
    )


def test_an_unknown_price_is_said_to_be_unknown(cli: Cli) -> None:
    outcome = cli("search", *LLAMA, "--clusters", "nd_gb300_v6", "--instances", "2")

    assert outcome.code == 0
    assert "price unknown: nd_gb300_v6, so last under dollars" in outcome.out


def test_a_cluster_that_is_none_is_refused(cli: Cli) -> None:
    outcome = cli("search", *LLAMA, "--clusters", "nd_h100_v9", "--instances", "2")

    assert outcome.code == 3
    assert "nd_h100_v9" in outcome.err
