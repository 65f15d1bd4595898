"""Real runs over gloo: what is learnt does not depend on ranks or engine, and whatever dies goes on."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest
import torch

from launcher.training.checkpoint.manifest import newest
from launcher.training.data.prepare import prepare
from launcher.training.initial import initial_rows
from tests.training.layouts import ALONE, DEEPSPEED, FSDP, laid_out
from tests.training.runs import Finished, Run, tiny_recipe, train, train_many
from tests.training.state import digests, parameters

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.recipe.schema import Recipe
    from tests.training.layouts import Layout


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Twenty steps of one process."""
    return train(tiny_recipe(), tmp_path_factory.mktemp("alone") / "run")


def largest_difference(run: Finished, other: Finished) -> float:
    assert len(run.losses) == len(other.losses) == 20
    return max(abs(a - b) / a for a, b in zip(run.losses, other.losses, strict=True))


def test_a_run_learns_evaluates_and_leaves_its_own_record(alone: Finished) -> None:
    assert alone.losses[0] == pytest.approx(5.55, abs=0.1)  # ln 257 = 5.549: it knows nothing yet
    assert alone.losses[-1] < alone.losses[0] - 1.2
    completed = alone.completed
    assert (completed["step"], completed["tokens"]) == (20, 20 * 8 * 32)
    assert completed["losses"]["last"] == alone.losses[-1]
    assert f"evaluation after step 20: loss {completed['losses']['evaluation']:.4f}" in alone.logs[0]
    assert "step 20/20 loss " in alone.logs[0]


def test_each_row_has_the_times_and_rates_of_its_step(alone: Finished) -> None:
    row = next(row["metrics"] for row in alone.rows if row["step"] == 3 and row["metrics"])
    assert row["step_seconds"] == pytest.approx(row["data_seconds"] + row["compute_seconds"])
    assert row["tokens_per_second"] == pytest.approx(256 / row["step_seconds"])
    assert row["tokens_seen"] == 3 * 256
    assert row["learning_rate"] == pytest.approx(3e-3 * 3 / 4)  # third of four steps of warm-up
    # Python, torch and transformers are there before the model is: 300 MB or more.
    assert row["peak_memory_bytes"] >= row["library_memory_bytes"] > 200e6


TWO: dict[str, Recipe] = {
    "ddp": laid_out((2, {}), "ddp"),
    "zero1": laid_out(DEEPSPEED["zero1"], "deepspeed"),
    "zero2": laid_out(DEEPSPEED["zero2"], "deepspeed"),
    "zero3": laid_out(DEEPSPEED["zero3"], "deepspeed"),
    "ddp-bf16": laid_out((2, {}), "ddp", training={"precision": "bf16"}),
    "zero2-bf16": laid_out(DEEPSPEED["zero2"], "deepspeed", training={"precision": "bf16"}),
}
UNMOVED = {"train_steps": 1, "evaluation_batches": 0, "optimizer": {"learning_rate": 1e-300}}
"""One step that changes no weight: what is saved after it is what was drawn."""
DRAWN: dict[str, Recipe] = {
    "drawn-ddp": laid_out((2, {}), "ddp", training=UNMOVED),
    "drawn-fsdp": laid_out(FSDP["fsdp"], "fsdp", training=UNMOVED),
    **{
        f"drawn-{name}": laid_out(DEEPSPEED[name], "deepspeed", training=UNMOVED)
        for name in ("zero0", "zero1", "zero2", "zero3", "pipeline")
    },
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finished]:
    """Twenty steps of one process, and of two under every engine."""
    return train_many({"alone": laid_out(ALONE, "ddp"), **TWO, **DRAWN}, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("name", ["ddp", "zero1", "zero2", "zero3"])
def test_two_ranks_of_any_engine_learn_what_one_learns(two: dict[str, Finished], name: str) -> None:
    assert largest_difference(two["alone"], two[name]) < 1e-5


@pytest.mark.parametrize("name", ["ddp-bf16", "zero2-bf16"])
def test_bf16_keeps_fp32_master_weights_and_stays_close(two: dict[str, Finished], name: str) -> None:
    assert largest_difference(two["alone"], two[name]) < 5e-3


@pytest.mark.parametrize("name", list(DRAWN))
def test_every_engine_begins_with_the_same_weights(two: dict[str, Finished], name: str) -> None:
    # tests/training/test_initial.py compares these with what transformers draws.
    model, seed = DRAWN[name].model, DRAWN[name].training.seed
    found = parameters(two[name])
    assert len(found) == 2 + 4 * 12 + 2  # GPT-2: two embeddings, twelve a layer, the last norm
    for weight, values in found.items():
        shape, cpu = tuple(values.shape), torch.device("cpu")
        drawn = initial_rows(weight, shape, model=model, seed=seed, rows=(0, shape[0]), device=cpu)
        assert torch.equal(values, drawn), weight


def test_after_kill_9_of_a_rank_the_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    recipe = tiny_recipe(checkpoint={"interval_steps": 6}, cluster={"processes_per_instance": 2})
    unbroken = train(recipe, tmp_path / "unbroken")
    run = Run(recipe, tmp_path / "broken")
    run.wait_for("saved step-00000006")
    run.wait_for("step 9/20")
    os.kill(run.processes[1].pid, signal.SIGKILL)
    broken = run.wait()
    assert broken.exit_codes == (1, -signal.SIGKILL)
    assert not (broken.output / "completed.json").exists()
    resumed = train(recipe, tmp_path / "broken")
    assert "resumed after step 6 from " in resumed.logs[0]
    assert resumed.losses == unbroken.losses[6:]
    assert digests(resumed) == digests(unbroken)


def test_zero_2_resumes_bit_for_bit(tmp_path: Path) -> None:
    recipe = tiny_recipe(
        parallelism={"engine": "deepspeed", "zero_stage": 2},
        training={"precision": "bf16", "train_steps": 12},
        checkpoint={"interval_steps": 4, "keep": 1},
        cluster={"processes_per_instance": 2},
    )
    unbroken = train(recipe, tmp_path / "unbroken")
    run = Run(recipe, tmp_path / "stopped")
    run.wait_for("saved step-00000004")
    run.kill()
    resumed = train(recipe, tmp_path / "stopped")
    assert resumed.losses == unbroken.losses[4:]
    assert digests(resumed) == digests(unbroken)
    assert len(list((resumed.output / "checkpoints").glob("step-*"))) == 1


def test_sigterm_saves_at_the_step_edge_and_exits_143(tmp_path: Path) -> None:
    recipe = tiny_recipe(training={"train_steps": 4000}, cluster={"processes_per_instance": 2})
    run = Run(recipe, tmp_path / "run")
    run.wait_for("step 3/4000")
    run.processes[1].send_signal(signal.SIGTERM)  # one rank is told; all stop in the same step
    stopped = run.wait()
    assert stopped.exit_codes == (143, 143)
    found = newest(stopped.output / "checkpoints")
    assert found is not None
    assert f"asked to stop: step {found[1].step} is saved" in stopped.logs[0]
    assert found[1].data_position == found[1].step * 8


def test_a_loss_that_is_not_finite_stops_the_run_and_names_rank_and_data(tmp_path: Path) -> None:
    recipe = tiny_recipe(training={"optimizer": {"learning_rate": 1e30}, "gradient_clipping": 0.0})
    failed = Run(recipe, tmp_path / "run").wait()
    assert failed.exit_codes == (1,)
    assert "stopped before its update" in failed.logs[0]
    assert "(rank 0, sequences " in failed.logs[0]
    assert "Traceback" not in failed.logs[0]
    assert newest(failed.output / "checkpoints") is None


def test_another_plan_or_world_than_the_submitted_one_is_refused_with_both_values(tmp_path: Path) -> None:
    recipe = tiny_recipe(cluster={"processes_per_instance": 2})
    run = Run(recipe, tmp_path / "digest", document={"plan_digest": "0" * 64})
    refused = run.wait()
    assert refused.exit_codes == (3, 3)
    assert "0" * 64 in refused.logs[0]
    job = tmp_path / "world" / "job.json"
    Run(tiny_recipe(), tmp_path / "world", document={"recipe": json.loads(run.job.read_text())["recipe"],
        "plan_digest": run.plan_digest}).wait()  # fmt: skip
    assert "2 ranks were planned and 1 run" in (job.parent / "rank-00000.log").read_text()


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    recipe = tiny_recipe(training={"train_steps": 6}, checkpoint={"interval_steps": 2})
    first = train(recipe, tmp_path / "run")
    found = newest(first.output / "checkpoints")
    assert found is not None
    shard = found[0] / "rank-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    again = train(recipe, tmp_path / "run")
    assert "is passed over: rank-00000.safetensors is not what was written" in again.logs[0]
    assert "resumed after step 4" in again.logs[0]
    assert digests(again) == [found[1].files[0].sha256]


def shards(home: Path, texts: list[str]) -> dict[str, str]:
    """A home with a shard of each text, as environment variables."""
    home.mkdir()
    for number, text in enumerate(texts):
        (home / f"{number}.txt").write_text(text * 200)
        prepare([home / f"{number}.txt"], home / f"shard-{number}")
    return {"HOME": str(home)}


def test_ranks_that_read_different_data_stop_before_the_first_step(tmp_path: Path) -> None:
    recipe = tiny_recipe(data={"train": ("~/shard-*.idx",)}, cluster={"processes_per_instance": 2})
    homes = [shards(tmp_path / "a", ["one ", "two "]), shards(tmp_path / "b", ["one ", "three "])]
    failed = Run(recipe, tmp_path / "run", variables=homes).wait()
    assert failed.exit_codes == (3, 3)
    assert "1 of 2 ranks, rank 1 the first, have other data than rank 0" in failed.logs[0]


def test_a_damaged_shard_within_the_limit_is_told_and_training_goes_on(tmp_path: Path) -> None:
    home = shards(tmp_path / "home", ["one ", "two "])
    (tmp_path / "home" / "shard-1.bin").write_bytes(b"torn")
    data = {"train": ("~/shard-*.idx",), "quarantine_limit": 1}
    run = Run(tiny_recipe(data=data, training={"train_steps": 1}), tmp_path / "run", variables=[home]).wait()
    assert run.exit_codes == (0,)
    assert "left out: " in run.logs[0]


def test_resume_required_without_a_checkpoint_fails(tmp_path: Path) -> None:
    failed = Run(tiny_recipe(checkpoint={"resume": "required"}), tmp_path / "run").wait()
    assert failed.exit_codes == (1,)
    assert "there is no whole checkpoint in" in failed.logs[0]


def test_a_run_continues_from_the_checkpoints_of_another(tmp_path: Path) -> None:
    short = train(tiny_recipe(training={"train_steps": 4, "schedule": {"name": "constant"}}), tmp_path / "short")
    longer = tiny_recipe(training={"train_steps": 6, "schedule": {"name": "constant"}})
    unbroken = train(longer, tmp_path / "unbroken")
    resumed = train(longer, tmp_path / "resumed", resume_from=short.output / "checkpoints")
    assert resumed.losses == unbroken.losses[4:]


def test_an_older_attempt_that_still_runs_commits_nothing_more(tmp_path: Path) -> None:
    recipe = tiny_recipe(training={"train_steps": 4000}, checkpoint={"interval_steps": 50})
    old = Run(recipe, tmp_path / "run")
    old.wait_for("step 5/4000")
    writer = old.output / "checkpoints" / "writer"
    writer.write_text("ffffff\n")  # what a newer attempt does first
    ended = old.wait()
    assert ended.exit_codes == (1,)
    assert "another attempt of this run writes to" in ended.logs[0]
    assert newest(ended.output / "checkpoints") is None


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_fifty_runs_in_a_row_end_cleanly(tmp_path: Path) -> None:
    short = {"train_steps": 2, "evaluation_batches": 0}
    layouts: list[tuple[str, Layout]] = [
        ("ddp", (2, {})),
        ("fsdp", FSDP["fsdp"]),
        ("fsdp", FSDP["1f1b"]),
        ("deepspeed", DEEPSPEED["zero2"]),
    ]
    for number in range(50):
        engine, layout = layouts[number % len(layouts)]
        run = train(laid_out(layout, engine, training=short), tmp_path / str(number))
        assert run.exit_codes == (0, 0)
        assert run.completed["step"] == 2
