"""The generated DeepSpeed configuration, and what is refused in a team's own block (cases D01 to D11)."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.plan.deepspeed_config import batch_triple, deepspeed_config, deepspeed_findings
from launcher.plan.plan import Batch, Finding, Topology
from launcher.recipe.schema import Model, Parallelism, Precision, Recipe, Training


def topology(world: int = 1, **sizes: int) -> Topology:
    tensor, pipeline, context = (sizes.get(axis, 1) for axis in ("tensor", "pipeline", "context"))
    data = world // (tensor * pipeline * context)
    return Topology(
        nodes=1, processes_per_node=world, world_size=world, tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline, virtual_pipeline_parallel_size=1, context_parallel_size=context,
        expert_parallel_size=1, data_parallel_size=data, shard_group_size=sizes.get("shard", data * context),
        equation="",
    )  # fmt: skip


def batch(global_size: int = 8, micro: int = 4, accumulation: int = 2) -> Batch:
    return Batch(
        global_batch_size=global_size, micro_batch_size=micro, gradient_accumulation_steps=accumulation,
        tokens_per_step=global_size * 32, train_steps=10, train_tokens=global_size * 320, equation="",
    )  # fmt: skip


def recipe(extra: dict[str, Any] | None = None, *, precision: Precision = "bf16", **layout: Any) -> Recipe:
    return Recipe(
        model=Model(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=256),
        training=Training(seq_length=32, global_batch_size=8, micro_batch_size=4, train_steps=10, precision=precision),
        parallelism=Parallelism(engine="deepspeed", deepspeed=extra or {}, **layout),
    )


def findings(extra: dict[str, Any] | None = None, world: int = 1, **layout: Any) -> tuple[Finding, ...]:
    return deepspeed_findings(recipe(extra, **layout), topology(world), batch())


def test_tensor_ranks_that_hold_other_tokens_send_all_of_them_to_the_next_stage() -> None:
    sizes: dict[str, Any] = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    shared, same = (
        deepspeed_config(recipe(sequence_parallel=shares, **sizes), topology(4, tensor=2, pipeline=2), batch())
        for shares in (True, False)
    )
    assert shared["pipeline"] == {"pipe_partitioned": False, "grad_partitioned": False}
    assert same["pipeline"] == {"pipe_partitioned": True, "grad_partitioned": True}
    (found,) = deepspeed_findings(
        recipe({"pipeline": {"pipe_partitioned": True}}, sequence_parallel=True, **sizes),
        topology(4, tensor=2, pipeline=2),
        batch(),
    )
    assert "pipeline.pipe_partitioned = True contradicts the recipe" in found.message


def only(found: tuple[Finding, ...]) -> Finding:
    assert len(found) == 1, [finding.message for finding in found]
    return found[0]


def test_every_default_that_differs_from_ours_is_written_out() -> None:
    assert deepspeed_config(recipe(zero_stage=2), topology(), batch()) == {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "steps_per_print": 1_000_000_000,
        "wall_clock_breakdown": False,
        "zero_allow_untested_optimizer": False,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": 2, "contiguous_gradients": True, "reduce_scatter": True, "overlap_comm": True},
        "optimizer": {
            "type": "AdamW",
            "params": {
                "lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
                "torch_adam": True, "adam_w_mode": True,
            },
        },
        "bf16": {"enabled": True},
    }  # fmt: skip


def test_no_clipping_is_said_aloud_because_deepspeed_would_clip_at_one() -> None:
    unclipped = Recipe(
        model=recipe().model, training=Training(seq_length=32, global_batch_size=8, train_steps=1, gradient_clipping=0)
    )
    assert deepspeed_config(unclipped, topology(), batch())["gradient_clipping"] == 0


def test_d01_a_triple_that_does_not_multiply_out_names_the_world_that_would() -> None:
    extra = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}
    message = next(f.message for f in findings(extra) if f.code == "deepspeed.batch_triple")
    assert "64 != 4 * 8 * 1" in message
    assert "2 data-parallel ranks would satisfy it" in message


def test_d01_with_the_world_it_needs_the_triple_passes() -> None:
    assert batch_triple(dict(zip(TRIPLE, (64, 4, 8), strict=True)), 2) == (64, 4, 8)


def test_d01_eight_sequences_by_two_want_four_ranks() -> None:
    with pytest.raises(ValueError, match=r"8 != 2 \* 1 \* 1; 4 data-parallel ranks"):
        batch_triple(dict(zip(TRIPLE, (8, 2, 1), strict=True)), 1)


def test_d01_the_world_is_the_data_parallel_ranks_not_all_of_them() -> None:
    extra = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}
    assert deepspeed_findings(recipe(extra), topology(4, tensor=4), batch()) == ()


TRIPLE = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


@pytest.mark.parametrize(
    ("given", "resolved"),
    [
        ((256, None, None), (256, 16, 1)),
        ((None, 4, None), (64, 4, 1)),
        ((256, 4, None), (256, 4, 4)),
        ((None, 4, 4), (256, 4, 4)),
        ((256, None, 4), (256, 4, 4)),
    ],
)
def test_d03_deepspeed_completes_a_triple_on_sixteen_ranks(
    given: tuple[int | None, ...], resolved: tuple[int, int, int]
) -> None:
    written = {name: value for name, value in zip(TRIPLE, given, strict=True) if value is not None}
    assert batch_triple(written, 16) == resolved


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"gradient_accumulation_steps": 4},
            "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided",
        ),
        ({"train_batch_size": 250, "train_micro_batch_size_per_gpu": 4}, r"250 != 4 \* 3 \* 16"),
    ],
)
def test_d03_what_cannot_be_completed_is_refused(given: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batch_triple(given, 16)


def test_d04_the_generated_bf16_block_is_exactly_enabled() -> None:
    config = deepspeed_config(recipe(), topology(), batch())
    assert config["bf16"] == {"enabled": True}
    assert "fp16" not in config


def test_d04_each_unknown_bf16_key_is_named() -> None:
    bad = {"loss_scale": 0, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1}
    found = findings({"bf16": {"enabled": True} | bad})
    assert [finding.keys[0] for finding in found] == [f"parallelism.deepspeed.bf16.{name}" for name in bad]
    assert all("bf16." in finding.message for finding in found)


def test_d06_a_number_written_as_text_is_named_with_its_type() -> None:
    found = only(findings({"gradient_accumulation_steps": "8"}))
    assert "str '8', expected int" in found.message


def test_d06_auto_gives_way_to_our_own_number() -> None:
    extra = {"train_batch_size": "auto", "gradient_clipping": "auto", "bf16": {"enabled": "auto"}}
    assert findings(extra) == ()
    config = deepspeed_config(recipe(extra), topology(), batch())
    assert (config["train_batch_size"], config["gradient_clipping"], config["bf16"]) == (8, 1.0, {"enabled": True})


def test_d06_auto_that_nothing_replaces_is_refused() -> None:
    found = only(findings({"zero_optimization": {"reduce_bucket_size": "auto"}}, zero_stage=2))
    assert "reduce_bucket_size is 'auto'" in found.message


@pytest.mark.parametrize(("stage", "is_refused"), [(0, False), (1, False), (2, True), (3, True)])
def test_d08_only_zero_0_and_1_go_with_a_pipeline(stage: int, is_refused: bool) -> None:
    found = deepspeed_findings(recipe(zero_stage=stage, pipeline_parallel_size=2), topology(2, pipeline=2), batch())
    assert bool(found) is is_refused
    if is_refused:
        assert f"ZeRO-{stage} is incompatible with 2-way pipeline parallelism" in found[0].message
        assert "zero_stage <= 1" in (found[0].allowed or "")
        assert found[0].edits[0].overrides == ("parallelism.zero_stage=1",)


def test_fp16_without_zero_is_refused_because_it_learns_something_else() -> None:
    found = only(deepspeed_findings(recipe(precision="fp16"), topology(), batch()))
    assert found.code == "deepspeed.fp16_zero0"
    assert not deepspeed_findings(recipe(precision="fp16", zero_stage=1), topology(), batch())


def test_d11_zero_3_gathers_whole_weights_on_save() -> None:
    zero = deepspeed_config(recipe(zero_stage=3), topology(), batch())["zero_optimization"]
    assert zero["stage3_gather_16bit_weights_on_model_save"] is True


def test_d11_asking_for_placeholders_is_refused() -> None:
    extra = {"zero_optimization": {"stage3_gather_16bit_weights_on_model_save": False}}
    assert "placeholders" in only(findings(extra, zero_stage=3)).message
    assert findings(extra, zero_stage=2) == ()


def test_a_stage_that_contradicts_the_recipe_names_both_keys() -> None:
    found = only(findings({"zero_optimization": {"stage": 3}}, zero_stage=1))
    assert found.keys == ("parallelism.deepspeed.zero_optimization.stage", "parallelism.zero_stage")
    assert "stage = 3 contradicts the recipe, from which it follows as 1" in found.message


def test_a_typo_gets_the_key_that_was_meant() -> None:
    found = only(findings({"zero_optimization": {"overlap_com": True}}, zero_stage=1))
    assert "zero_optimization.overlap_comm" in (found.allowed or "")


def test_a_teams_own_bucket_size_is_merged_over_ours() -> None:
    extra = {"zero_optimization": {"reduce_bucket_size": 5_000_000}}
    assert findings(extra, zero_stage=1) == ()
    zero = deepspeed_config(recipe(extra, zero_stage=1), topology(), batch())["zero_optimization"]
    assert (zero["stage"], zero["reduce_bucket_size"]) == (1, 5_000_000)


def test_another_engine_has_no_deepspeed_findings() -> None:
    other = Recipe(
        model=recipe().model,
        training=recipe().training,
        parallelism=Parallelism(engine="ddp", deepspeed={"nonsense": "auto"}),
    )
    assert deepspeed_findings(other, topology(), batch()) == ()


def test_offloaded_state_and_a_small_shard_group_reach_deepspeed() -> None:
    layout = recipe(zero_stage=3, offload_optimizer="cpu", offload_parameters="nvme")
    zero = deepspeed_config(layout, topology(8, shard=4), batch())["zero_optimization"]
    assert zero["offload_optimizer"] == {"device": "cpu", "pin_memory": True}
    assert zero["offload_param"] == {"device": "nvme", "pin_memory": True, "nvme_path": "/mnt/deepspeed_nvme"}
    assert (zero["zero_hpz_partition_size"], zero["overlap_comm"]) == (4, False)


def test_deepspeed_itself_reads_the_generated_configuration() -> None:
    module = pytest.importorskip("deepspeed.runtime.config", reason="needs the extra: pip install launcher[local]")
    for stage in (0, 1, 2, 3):
        config = deepspeed_config(recipe(zero_stage=stage), topology(), batch(global_size=8, micro=4, accumulation=2))
        read = module.DeepSpeedConfig(config)
        assert (read.train_batch_size, read.gradient_accumulation_steps, read.gradient_clipping) == (8, 2, 1.0)
        assert read.zero_optimization_stage == stage
        assert read.bfloat16_config.enabled
