"""The search finds what trying everything would find, and only what the planner accepts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import islice, product
from typing import TYPE_CHECKING

import pytest

from launcher.plan.findings import recipe_findings
from launcher.plan.overrides import apply_overrides, changes_convergence
from launcher.plan.planner import bare_plan, make_plan
from launcher.plan.search import search
from launcher.plan.search_ground import Ground
from launcher.plan.search_layouts import RECOMPUTES, Cut, Sharding, families, overrides, shardings
from launcher.plan.search_place import Place
from launcher.plan.search_result import ClusterChoice, SearchResult
from launcher.recipe.schema import Checkpoint, Limits, Recipe, Training
from tests.plan.recipes import GPT3_175B, LLAMA2_7B, LLAMA3_8B, MIXTRAL_8X7B, on, recipe

if TYPE_CHECKING:
    from collections.abc import Iterator

H100, A100, GB300 = "Standard_ND96isr_H100_v5", "Standard_ND96asr_v4", "Standard_ND128isr_GB300_v6"
TOKENS = 10**11
SAVED = Checkpoint(interval_steps=500)
"""A run of more than 21 days must save."""


def trained(seq: int = 4096, batch: int = 256, **keys: object) -> Training:
    return Training(seq_length=seq, global_batch_size=batch, train_tokens=TOKENS, **keys)  # type: ignore[arg-type]


LLAMA = recipe(LLAMA2_7B, training=trained(), cluster=on(H100, 2), checkpoint=SAVED)
LLAMA_ON_GB300 = recipe(LLAMA2_7B, training=trained(), cluster=on(GB300), checkpoint=SAVED)
MIXTRAL = recipe(MIXTRAL_8X7B, training=trained(8192), cluster=on(H100, 4), checkpoint=SAVED)
GPT = recipe(GPT3_175B, training=trained(2048, 1536), cluster=on(H100, 16), checkpoint=SAVED)
RECIPES = {"llama": (LLAMA, 2), "mixtral": (MIXTRAL, 4), "gpt": (GPT, 16)}


def everything(asked: Recipe, instances: int, every: int = 1) -> Iterator[tuple[Cut, Sharding]]:
    """One in ``every`` of all layouts."""
    case = Ground(asked).case(instances)
    layouts = (
        (cut, sharding) for family in families(case) for cut in family.members() for sharding in shardings(cut, case)
    )
    return islice(layouts, 0, None, every)


@cache
def found(name: str) -> SearchResult:
    asked, instances = RECIPES[name]
    return search(asked, instances=[instances])


@pytest.mark.parametrize("name", RECIPES)
def test_every_result_planned_again_is_accepted_and_takes_as_long(name: str) -> None:
    asked, _ = RECIPES[name]

    assert len(found(name).results) == 10
    for result in found(name).results:
        plan = make_plan(apply_overrides(asked, result.overrides))

        assert plan.errors == ()
        assert plan.time.step_seconds == pytest.approx(result.plan.time.step_seconds, rel=1e-12)
        assert not changes_convergence(result.overrides)


@pytest.mark.parametrize("name", RECIPES)
def test_what_the_search_computes_is_what_the_plan_says(name: str) -> None:
    asked, instances = RECIPES[name]
    ground = Ground(asked)

    for cut, sharding in everything(asked, instances, every=997):
        workload = ground.workload(cut, sharding)
        plan = bare_plan(apply_overrides(asked, overrides(asked, instances, cut, sharding)))

        assert ground.seconds(workload) == pytest.approx(plan.time.step_seconds, rel=1e-9), (cut, sharding)
        assert ground.memory(workload).bytes_per_gpu == plan.memory.bytes_per_gpu, (cut, sharding)


@pytest.mark.parametrize("name", RECIPES)
def test_no_layout_offered_breaks_a_rule(name: str) -> None:
    asked, instances = RECIPES[name]
    ground = Ground(asked)

    for cut, sharding in everything(asked, instances, every=211):
        case = replace(
            ground.case(instances), recipe=apply_overrides(asked, overrides(asked, instances, cut, sharding))
        )

        assert [each.message for each in recipe_findings(case) if each.level == "error"] == [], (cut, sharding)


def test_every_fsdp_layout_the_rules_allow_is_offered() -> None:
    """Every product of small axes on 16 ranks is tried against the rules themselves."""
    asked = replace(LLAMA, training=trained(batch=64))
    offered = {
        (cut.tensor, cut.pipeline, cut.virtual, cut.context, cut.micro_batch)
        for cut, _ in everything(asked, 2)
        if cut.engine == "fsdp"
    }
    ground = Ground(asked)
    allowed = set()
    for tensor, pipeline, virtual, context, micro in product((1, 2, 4, 8, 16), repeat=5):
        words = (
            "parallelism.engine=fsdp",
            f"parallelism.tensor_parallel_size={tensor}",
            f"parallelism.pipeline_parallel_size={pipeline}",
            f"parallelism.virtual_pipeline_parallel_size={virtual if virtual > 1 else 'null'}",
            f"parallelism.context_parallel_size={context}",
            f"training.micro_batch_size={micro}",
        )
        case = replace(ground.case(2), recipe=apply_overrides(asked, words))
        if not any(each.level == "error" for each in recipe_findings(case)):
            allowed.add((tensor, pipeline, virtual, context, micro))

    # up to 16 alone was tried here; more virtual stages or larger micro batches are offered too
    assert allowed == {axes for axes in offered if max(axes) <= 16}


@pytest.mark.parametrize("name", RECIPES)
def test_the_floors_lie_under_what_every_layout_takes_and_holds(name: str) -> None:
    asked, instances = RECIPES[name]
    ground = Ground(asked)
    case = ground.case(instances)
    world = case.world

    for cut, sharding in everything(asked, instances, every=397):
        workload = ground.workload(cut, sharding)
        alone = ground.floors(cut, world, [cut.virtual], [cut.recompute])[0][0]
        held = ground.floor_bytes(cut, tuple(shardings(cut, case)))

        assert alone <= ground.seconds(workload) * (1 + 1e-9), (cut, sharding)
        of_this = held[tuple(shardings(cut, case)).index(sharding)]
        assert of_this <= ground.memory(workload).bytes_per_gpu * (1 + 1e-9), (cut, sharding)


@pytest.mark.parametrize("name", RECIPES)
def test_no_member_of_a_family_has_a_lower_floor_than_the_family(name: str) -> None:
    asked, instances = RECIPES[name]
    ground = Ground(asked)
    case = ground.case(instances)

    for family in families(case):
        cut = family.fastest
        lowest = ground.floors(cut, case.world, [cut.virtual], [cut.recompute])[0][0]
        members = ground.floors(cut, case.world, family.virtuals, RECOMPUTES)
        assert lowest <= min(members)[0]


def test_trying_everything_finds_the_same_layout() -> None:
    ground = Ground(LLAMA)
    times = []
    for cut, sharding in everything(LLAMA, 2):
        workload = ground.workload(cut, sharding)
        if ground.fits(ground.memory(workload)):
            times.append(ground.seconds(workload))

    assert found("llama").results[0].plan.time.step_seconds == pytest.approx(min(times), rel=1e-12)
    assert found("llama").candidates == sum(1 for _ in everything(LLAMA, 2))
    assert found("llama").evaluated < found("llama").candidates / 4


def test_the_same_question_has_the_same_answer() -> None:
    assert search(LLAMA, instances=[2]) == found("llama")


def test_results_are_in_the_order_asked_for_whatever_the_clusters_order() -> None:
    sizes = {"h100": H100, "a100": A100}
    choices = [ClusterChoice(name=name, recipe=replace(LLAMA, cluster=on(size))) for name, size in sizes.items()]

    asked = [search(LLAMA, clusters=order, instances=(2, 4, 8)) for order in (choices, choices[::-1])]
    dollars = [each.plan.cost.dollars or 0 for each in asked[0].results]

    assert dollars == sorted(dollars)
    assert [each.overrides for each in asked[0].results] == [each.overrides for each in asked[1].results]


def test_more_results_begin_with_the_fewer() -> None:
    few, many = (search(LLAMA, instances=(2, 4, 8), top=top).results for top in (3, 40))

    assert [each.overrides for each in many[:3]] == [each.overrides for each in few]
    assert len(many) == 40


def test_the_frontier_trades_time_for_money() -> None:
    frontier = search(LLAMA, instances=(1, 2, 4, 8, 16)).frontier
    hours = [each.plan.time.expected_hours for each in frontier]
    dollars = [each.plan.cost.dollars or 0 for each in frontier]

    assert len(frontier) >= 2
    assert hours == sorted(hours)
    assert dollars == sorted(dollars, reverse=True)


def test_a_deadline_gives_the_fewest_nodes() -> None:
    counts = (1, 2, 4, 8, 16)
    hours = {each.instances: each.plan.time.expected_hours for each in search(LLAMA, instances=counts).places}
    deadline = hours[4] * 3600 * 1.001

    result = search(LLAMA, instances=counts, deadline_seconds=deadline)

    assert {each.instances for each in result.results} <= {4, 8, 16}
    assert f"at least 4 x {H100} (32 ranks)" in result.answers[0]


def test_nodes_and_a_deadline_give_the_tokens() -> None:
    whole = search(LLAMA, instances=(2,)).places[0]

    result = search(LLAMA, instances=(2,), deadline_seconds=whole.plan.time.expected_hours * 3600 / 2)

    # half the time sees half the tokens, to a step of 256 x 4096
    assert result.results == ()
    assert result.places[0].affordable_tokens == pytest.approx(TOKENS / 2, abs=2 * 256 * 4096)
    assert "50.0 B tokens" in result.answers[0]


def test_a_budget_is_kept_and_the_recipes_own_counts() -> None:
    dollars = search(LLAMA, instances=(2,)).results[0].plan.cost.dollars or 0
    limited = replace(LLAMA, limits=Limits(budget_dollars=0.99 * dollars))

    assert search(LLAMA, instances=(2,), budget_dollars=0.99 * dollars).results == ()
    assert search(limited, instances=(2,)).results == ()
    assert search(limited, instances=(2,)).places[0].meets_limits is False
    assert search(LLAMA, instances=(2,), budget_dollars=1.01 * dollars).results != ()


def test_an_unknown_price_is_last_under_dollars_and_not_under_hours() -> None:
    choices = [
        ClusterChoice(name="gb300", recipe=LLAMA_ON_GB300),
        ClusterChoice(name="h100", recipe=replace(LLAMA, cluster=on(H100))),
    ]

    cheapest, soonest = (
        search(LLAMA, clusters=choices, instances=(2,), minimize=measure) for measure in ("dollars", "hours")
    )

    assert {each.cluster for each in cheapest.results} == {"h100"}
    assert soonest.results[0].cluster == "gb300"
    assert cheapest.unpriced == ("gb300",)
    assert {each.cluster for each in cheapest.frontier} == {"h100", "gb300"}


def test_where_no_price_is_known_the_fastest_is_first() -> None:
    result = search(LLAMA_ON_GB300, instances=(2, 4))

    hours = [each.plan.time.expected_hours for each in result.results]
    assert hours == sorted(hours)
    assert len(hours) == 10


def test_a_place_where_nothing_fits_says_what_the_smallest_layout_needs() -> None:
    result = search(GPT, instances=(1,))

    assert (result.results, result.places, result.reasons) == ((), (), ())
    # 175 billion parameters x 16 bytes over 8 GPUs: 326 GiB of state, more than 80
    assert "nothing fits: the smallest layout needs" in result.refusals[0].reason


def test_a_fault_that_no_layout_mends_is_told() -> None:
    v100 = replace(LLAMA, cluster=on("Standard_ND40rs_v2"))

    result = search(v100, instances=(16,))

    assert result.results == ()
    assert result.refusals[0].reason == "V100-SXM2-32GB has no bf16 matrix products"


def test_ranks_that_do_not_divide_the_batch_leave_no_layout() -> None:
    result = search(replace(LLAMA, training=trained(batch=1)), instances=(11,))

    # 88 ranks = 8 x 11: nothing takes the 11 when there is one sequence, 32 layers, 32 heads and 4096 tokens
    assert result.candidates == 0
    assert result.refusals[0].reason.startswith("no layout divides")


def test_experts_are_spread_too() -> None:
    offered = {cut.expert for cut, _ in everything(MIXTRAL, 4)}

    assert offered == {1, 2, 4, 8}


def test_context_ranks_are_offered_for_long_sequences() -> None:
    long = recipe(
        replace(LLAMA3_8B, max_position_embeddings=131072),
        training=trained(131072, 8),
        cluster=on(H100, 16),
        checkpoint=SAVED,
    )

    best = search(long, instances=(16,)).results[0]

    # 8 sequences on 128 ranks: without context ranks, at most 8 x 8 (tensor) x pipeline
    assert best.plan.topology.world_size == 128
    assert make_plan(apply_overrides(long, best.overrides)).errors == ()


def test_the_reasons_name_what_the_recipe_as_it_stands_loses() -> None:
    standing = apply_overrides(GPT, ("parallelism.engine=ddp",))

    reasons = search(standing, instances=[16]).reasons

    assert reasons[0].startswith("best: a step of ")
    assert reasons[-1].startswith("the recipe as it stands is refused: does not fit")


def test_the_best_asked_again_is_the_recipe_as_it_stands() -> None:
    best = apply_overrides(LLAMA, found("llama").results[0].overrides)

    again = search(best, instances=[2])

    assert again.results[0].overrides == ()
    assert again.reasons[-1] == "the recipe as it stands is the best found"


def test_headroom_stays_free() -> None:
    usable = found("gpt").results[0].plan.memory.usable_bytes or 0

    careful = search(GPT, instances=[16], headroom=0.2).results
    reckless = search(GPT, instances=[16], headroom=0.0).results

    assert max(each.plan.memory.bytes_per_gpu for each in careful) <= 0.8 * usable
    assert reckless[0].plan.time.step_seconds <= careful[0].plan.time.step_seconds


def test_place_counts_what_it_computed() -> None:
    place = Place(Ground(LLAMA), 2)

    place.fastest(lambda found: 0.0)

    assert 0 < place.evaluated < place.layouts
