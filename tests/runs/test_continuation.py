"""Whether a checkpoint can be gone on from by another recipe, and what changes (cases K01 and those like it)."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from launcher.plan.planner import make_plan
from launcher.recipe import codec
from launcher.runs.continuation import Continuation, continuation
from launcher.training.checkpoint.manifest import MANIFEST, Manifest, folder_name, render
from tests.training.layouts import ALONE, laid_out

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.recipe.schema import Recipe


def write_manifest(directory: Path, recipe: Recipe, *, step: int) -> Path:
    """A checkpoint without files, as a run of ``recipe`` leaves it."""
    folder = directory / folder_name(step, "abcdef")
    folder.mkdir(parents=True)
    layout = {"engine": recipe.parallelism.engine, "zero_stage": recipe.parallelism.zero_stage}
    manifest = Manifest(
        step=step, tokens=0, data_position=0, layout=layout | asdict(make_plan(recipe).topology),
        recipe=codec.encode(recipe), recipe_digest="", attempt=1, random="", data_digest="", losses={}, scalars={},
        files=(),
    )  # fmt: skip
    (folder / MANIFEST).write_text(render(manifest))
    return folder


def go_on(directory: Path, recipe: Recipe) -> Continuation:
    found = continuation(directory, recipe, make_plan(recipe))
    assert found is not None
    return found


def resized(ranks: int, **changes: Any) -> Recipe:
    return laid_out((ranks, {"zero_stage": 3}), "fsdp", **changes)


def test_another_layout_is_read_and_told_apart_from_what_is_learnt(tmp_path: Path) -> None:
    folder = write_manifest(tmp_path, laid_out((4, {"tensor_parallel_size": 2}), "fsdp"), step=12)
    found = go_on(tmp_path, resized(8, training={"optimizer": {"learning_rate": 1e-3}, "global_batch_size": 16}))
    assert (found.checkpoint, found.step, found.train_steps, found.faults) == (folder, 12, 20, ())
    assert found.is_resharded
    assert found.written_by == "fsdp ZeRO-0, tensor 2 x pipeline 1 x context 1 x data 2"
    assert found.read_by == "fsdp ZeRO-3, tensor 1 x pipeline 1 x context 1 x data 8"
    assert {(change.key, change.tag) for change in found.changes} == {
        ("training.global_batch_size", "convergence"),
        ("training.optimizer.learning_rate", "convergence"),
        ("parallelism.tensor_parallel_size", "mapping"),
        ("parallelism.zero_stage", "mapping"),
    }


def test_the_same_layout_is_not_resharded(tmp_path: Path) -> None:
    write_manifest(tmp_path, resized(2), step=12)
    found = go_on(tmp_path, resized(2))
    assert not found.is_resharded
    assert found.changes == ()


def test_another_model_is_refused_key_by_key(tmp_path: Path) -> None:
    write_manifest(tmp_path, laid_out(ALONE, "ddp"), step=12)
    wider = laid_out(ALONE, "ddp", model={"hidden_size": 64, "dropout": 0.1})
    (fault,) = go_on(tmp_path, wider).faults
    assert fault.what == "the checkpoint holds a model with model.hidden_size=32, the recipe asks for 64"
    assert fault.suggestion == "model.hidden_size=32"


def test_adapters_do_not_go_on_from_whole_weights(tmp_path: Path) -> None:
    write_manifest(tmp_path, laid_out(ALONE, "ddp"), step=12)
    adapted = laid_out(ALONE, "ddp", model={"init_optimizer": True}, training={"lora": {"rank": 4, "alpha": 8.0}})
    (fault,) = go_on(tmp_path, adapted).faults
    assert fault.keys == ("training.lora.rank",)


def test_a_run_that_has_reached_the_last_step_has_nothing_to_go_on_to(tmp_path: Path) -> None:
    write_manifest(tmp_path, laid_out(ALONE, "ddp"), step=20)
    (fault,) = go_on(tmp_path, laid_out(ALONE, "ddp")).faults
    assert fault.what == "the checkpoint is of step 20, and the recipe ends with step 20"


def test_a_folder_without_a_checkpoint_is_none(tmp_path: Path) -> None:
    recipe = laid_out(ALONE, "ddp")
    assert continuation(tmp_path, recipe, make_plan(recipe)) is None


@pytest.fixture
def deepspeeds(tmp_path: Path) -> Path:
    """What DeepSpeed leaves of 32 data-parallel ranks under ZeRO-3."""
    folder = tmp_path / "global_step2000"
    folder.mkdir()
    for rank in range(32):
        (folder / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").touch()
    (tmp_path / "latest").write_text("global_step2000")
    return tmp_path


def test_k01_deepspeeds_own_checkpoint_is_refused_with_both_sizes_and_two_ways_out(deepspeeds: Path) -> None:
    recipe = resized(8, training={"global_batch_size": 256})
    larger = replace(recipe, cluster=replace(recipe.cluster, instance_count=16))  # 16 x 8
    (fault,) = go_on(deepspeeds, larger).faults
    assert "of 32 data-parallel ranks; this plan has 128" in fault.what
    assert fault.suggestion is not None
    universal, weights = fault.suggestion.splitlines()
    assert "deepspeed.checkpoint.ds_to_universal" in universal
    assert "model.init_from=" in weights


def test_k01_a_universal_checkpoint_is_read_by_any_layout(deepspeeds: Path) -> None:
    parameter = deepspeeds / "global_step2000_universal" / "zero" / "model.norm.weight"
    parameter.mkdir(parents=True)
    (parameter / "fp32.pt").touch()
    (deepspeeds / "latest_universal").write_text("global_step2000_universal")
    found = go_on(deepspeeds, resized(4))
    assert found.faults == ()
    assert found.checkpoint == deepspeeds / "global_step2000_universal"
