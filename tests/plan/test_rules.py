"""Every cross-field rule, one broken recipe a case; expected answers from the reports named beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from launcher.errors import PlanError
from launcher.plan.overrides import apply_overrides
from launcher.plan.planner import bare_plan, make_plan
from launcher.recipe.schema import (
    Checkpoint,
    Cluster,
    Data,
    Entry,
    Environment,
    Limits,
    Parallelism,
    Recipe,
    Training,
)
from tests.plan.recipes import GPT3_175B, LLAMA2_7B, LLAMA3_8B, MIXTRAL_8X7B, TINY, on, recipe

if TYPE_CHECKING:
    from launcher.plan.plan import Finding

A100, H100 = "Standard_ND96amsr_A100_v4", "Standard_ND96isr_H100_v5"
SHORT = Training(seq_length=128, global_batch_size=1024, train_steps=10)


def found(asked: Recipe) -> dict[str, Finding]:
    return {finding.code: finding for finding in make_plan(asked).findings}


def refused(asked: Recipe) -> dict[str, str]:
    with pytest.raises(PlanError) as caught:
        make_plan(asked)
    return {fault.code: fault.what for fault in caught.value.faults}


def test_a_plain_recipe_has_no_findings() -> None:
    assert make_plan(recipe()).findings == ()


def test_sixteen_processes_on_eight_gpus_are_refused_with_the_size_and_both_numbers() -> None:
    # MicrosoftDocs/azure-docs issue 111307: "GPUs x nodes" was written where "GPUs per node" was meant.
    finding = found(recipe(training=SHORT, cluster=on(A100, 2, processes_per_instance=16)))["plan.processes"]

    assert finding.level == "error"
    assert all(words in finding.message for words in (A100, "8 GPUs per node", "16 > 8"))
    assert finding.edits[0].overrides == ("cluster.processes_per_instance=8",)


def test_two_processes_on_a_one_gpu_size_are_refused_and_two_nodes_are_offered() -> None:
    # Azure/azureml-examples issue 675: "Duplicate GPU detected".
    cluster = on("Standard_NC6s_v3", processes_per_instance=2)
    finding = found(recipe(training=replace(SHORT, precision="fp16"), cluster=cluster))["plan.processes"]

    assert all(words in finding.message for words in ("process_count_per_instance=2", "Standard_NC6s_v3", "1 GPU"))
    assert any(
        {"cluster.instance_count=2", "cluster.processes_per_instance=1"} <= set(edit.overrides)
        for edit in finding.edits
    )


def test_one_process_per_gpu_is_the_default() -> None:
    topology = make_plan(recipe(training=SHORT, cluster=on(A100, 2))).topology

    assert (topology.world_size, topology.nodes, topology.processes_per_node) == (16, 2, 8)


def test_a_retired_size_is_refused() -> None:
    asked = recipe(training=replace(SHORT, precision="fp16"), cluster=on("Standard_NC6s_v3"))

    assert "retired on 2025-09-30" in found(asked)["plan.retired"].message


def test_a_global_batch_that_does_not_divide_names_the_nearest_valid_ones() -> None:
    # mosaicml/examples PR 41: global 500 on 64 GPUs, micro 1.
    asked = recipe(training=replace(SHORT, global_batch_size=500), cluster=on(H100, 8))

    with pytest.raises(PlanError, match="500 is not a multiple of micro 1 x data 64") as caught:
        make_plan(asked)
    assert "448 or 512" in (caught.value.faults[0].allowed or "")


def test_24_sequences_on_two_data_parallel_ranks_accumulate_12() -> None:
    layout = Parallelism(engine="fsdp", tensor_parallel_size=4, pipeline_parallel_size=2)
    asked = recipe(training=replace(SHORT, global_batch_size=24), parallelism=layout, cluster=on(H100, 2))

    assert make_plan(asked).batch.gradient_accumulation_steps == 12


def test_24_sequences_on_16_data_parallel_ranks_are_refused() -> None:
    asked = recipe(training=replace(SHORT, global_batch_size=24), cluster=on(H100, 2))

    with pytest.raises(PlanError) as caught:
        make_plan(asked)
    assert "16 or 32" in (caught.value.faults[0].allowed or "")


def test_an_accumulation_that_does_not_multiply_out_is_refused_with_the_product() -> None:
    # bigcode-project/starcoder issue 77: 64 != 4 * 8 * 1.
    training = Training(
        seq_length=128,
        global_batch_size=64,
        micro_batch_size=4,
        gradient_accumulation_steps=8,
        train_steps=1,
        precision="fp32",
    )

    assert "64 != 4 micro x 8 accumulation x 1 data" in found(recipe(training=training))["plan.accumulation"].message


@pytest.mark.parametrize(("stage", "accepted"), [(0, True), (1, True), (2, False), (3, False)])
def test_deepspeed_pipelines_combine_with_zero_up_to_stage_1(stage: int, accepted: bool) -> None:
    # deepspeedai/DeepSpeed issue 3589.
    layout = Parallelism(engine="deepspeed", pipeline_parallel_size=2, zero_stage=stage)  # type: ignore[arg-type]
    plan = make_plan(recipe(training=SHORT, parallelism=layout, cluster=on(H100)))

    assert (plan.errors == ()) is accepted
    if not accepted:
        assert "incompatible" in plan.errors[0].message


def test_tensor_parallelism_divides_heads_and_key_value_heads() -> None:
    layout = Parallelism(engine="fsdp", tensor_parallel_size=16)
    asked = recipe(LLAMA3_8B, training=SHORT, parallelism=layout, cluster=on(H100, 2))

    finding = found(asked)["plan.tensor_heads"]
    assert "does not divide 8 key/value heads" in finding.message
    assert finding.edits[0].overrides == ("parallelism.tensor_parallel_size=8",)


def test_tensor_parallelism_stays_inside_nvlink() -> None:
    layout = Parallelism(engine="fsdp", tensor_parallel_size=16)
    asked = recipe(GPT3_175B, training=SHORT, parallelism=layout, cluster=on(H100, 16))

    assert "leaves the 8 GPUs" in found(asked)["plan.tensor_island"].message


def test_a_72_gpu_rack_takes_12_way_tensor_parallelism() -> None:
    layout = Parallelism(engine="fsdp", tensor_parallel_size=12)
    training = replace(SHORT, global_batch_size=240)
    asked = recipe(GPT3_175B, training=training, parallelism=layout, cluster=on("Standard_ND128isr_NDR_GB200_v6", 36))

    assert "plan.tensor_island" not in found(asked)


def test_pipeline_stages_divide_the_layers() -> None:
    layout = Parallelism(engine="fsdp", pipeline_parallel_size=5)
    asked = recipe(LLAMA2_7B, training=replace(SHORT, global_batch_size=8), parallelism=layout, cluster=on(H100, 5))

    finding = found(asked)["plan.pipeline_layers"]
    assert "do not divide 32 layers" in finding.message
    assert finding.edits[0].overrides == ("parallelism.pipeline_parallel_size=4", "cluster.instance_count=4")


def test_the_axes_divide_the_world() -> None:
    layout = Parallelism(engine="fsdp", tensor_parallel_size=8, pipeline_parallel_size=4)

    faults = refused(recipe(GPT3_175B, training=SHORT, parallelism=layout, cluster=on(H100, 3)))
    assert "32 ranks do not divide the world of 24" in faults["plan.world_size"]


def test_an_asserted_data_parallel_size_is_checked() -> None:
    asked = recipe(training=SHORT, parallelism=Parallelism(data_parallel_size=4), cluster=on(H100))

    assert "data_parallel_size is 4" in found(asked)["plan.data_parallel_size"].message


def test_ring_attention_needs_two_slices_a_rank() -> None:
    layout = Parallelism(engine="fsdp", context_parallel_size=4)
    training = replace(SHORT, seq_length=1028)
    asked = recipe(LLAMA2_7B, training=training, parallelism=layout, cluster=on(H100))

    assert "1028 tokens do not split into 8 slices" in found(asked)["plan.context_length"].message


def test_ulysses_divides_the_heads() -> None:
    layout = Parallelism(engine="deepspeed", context_parallel_size=8, zero_stage=3)
    model = replace(TINY, num_attention_heads=4)

    assert "plan.context_heads" in found(recipe(model, training=SHORT, parallelism=layout, cluster=on(H100)))


def test_experts_are_shared_evenly_over_data_parallel_ranks() -> None:
    layout = Parallelism(engine="fsdp", zero_stage=3, expert_parallel_size=3)
    training = replace(SHORT, global_batch_size=24)

    finding = found(recipe(MIXTRAL_8X7B, training=training, parallelism=layout, cluster=on(H100, 3)))
    assert "3-way expert parallelism must divide 8 experts" in finding["plan.expert_parallel"].message


def test_a_dense_model_has_no_experts_to_share() -> None:
    layout = Parallelism(engine="fsdp", expert_parallel_size=2)

    assert (
        "the model has no experts"
        in found(recipe(training=SHORT, parallelism=layout, cluster=on(H100)))["plan.expert_parallel"].message
    )


def test_ddp_splits_and_shards_nothing() -> None:
    layout = Parallelism(engine="ddp", tensor_parallel_size=2, zero_stage=2)
    finding = found(recipe(training=SHORT, parallelism=layout, cluster=on(H100)))["plan.engine_ddp"]

    assert "tensor_parallel_size=2, zero_stage=2" in finding.message
    assert finding.edits[0].overrides == ("parallelism.engine=fsdp",)


def test_zero_at_data_parallel_size_1_saves_nothing() -> None:
    # deepspeedai/DeepSpeed issue 237.
    layout = Parallelism(engine="deepspeed", tensor_parallel_size=4, pipeline_parallel_size=2, zero_stage=1)
    training = replace(SHORT, global_batch_size=8)

    asked = recipe(training=training, parallelism=layout, cluster=on(H100))
    assert "dp=1" in found(asked)["plan.zero_alone"].message


@pytest.mark.parametrize("steps", [(None, None), (10, 1000)])
def test_exactly_one_of_steps_and_tokens_is_given(steps: tuple[int | None, int | None]) -> None:
    training = Training(
        seq_length=128, global_batch_size=8, train_steps=steps[0], train_tokens=steps[1], precision="fp32"
    )

    assert found(recipe(training=training))["plan.duration"].allowed == "exactly one of the two"


def test_sequences_fit_the_positions() -> None:
    training = Training(seq_length=256, global_batch_size=8, train_steps=10, precision="fp32")

    assert (
        "256 tokens are longer than the model's 128 positions"
        in found(recipe(training=training))["plan.sequence_length"].message
    )


@pytest.mark.parametrize(("size", "asked"), [("Standard_ND40rs_v2", "bf16"), (A100, "fp8")])
def test_a_precision_without_hardware_is_refused(size: str, asked: str) -> None:
    training = replace(SHORT, precision=asked)  # type: ignore[arg-type]

    assert found(recipe(training=training, cluster=on(size)))["plan.precision"].level == "error"


def test_nodes_without_infiniband_are_refused_where_a_sibling_has_it() -> None:
    finding = found(recipe(training=SHORT, cluster=on("Standard_ND96is_H100_v5", 2)))["plan.no_infiniband"]

    assert finding.level == "error"
    assert finding.edits[0].overrides == ("cluster.instance_type=Standard_ND96isr_H100_v5",)


def test_several_t4_nodes_are_warned_about() -> None:
    training = replace(SHORT, precision="fp16")

    assert found(recipe(training=training, cluster=on("Standard_NC4as_T4_v3", 2)))["plan.no_infiniband"].level == (
        "warning"
    )


@pytest.mark.parametrize(
    ("size", "fitting"),
    [("Standard_ND96isr_H100_v5", "cuda"), ("Standard_ND128isr_GB300_v6", "cuda_arm64"),
     ("Standard_ND96isr_MI300X_v5", "rocm")],
)  # fmt: skip
def test_a_size_typed_without_its_environment_is_told_which_one(size: str, fitting: str) -> None:
    asked = recipe(training=SHORT, cluster=on(size), environment=Environment(name="cpu"))

    said = found(asked)["plan.environment"]
    assert (said.level, said.edits[0].overrides) == ("error", (f"environment.name={fitting}",))
    assert "plan.environment" not in found(replace(asked, environment=Environment(name=fitting)))


def test_azure_cannot_run_on_local() -> None:
    # Azure/azure-sdk-for-python issue 37867: an unrelated enum was named.
    cluster = Cluster(backend="azureml", instance_type=A100, compute="local")

    assert "use cluster.backend=local" in found(recipe(training=SHORT, cluster=cluster))["plan.backend_local"].message


def test_more_than_100_nodes_need_a_support_request() -> None:
    asked = recipe(training=replace(SHORT, global_batch_size=808), cluster=on(H100, 101))

    assert found(asked)["plan.node_limit"].level == "warning"


def test_shared_memory_must_hold_what_loader_workers_prefetch() -> None:
    data = Data(num_workers=8)
    asked = recipe(training=SHORT, cluster=on(A100, shm_size="2g"), data=data, entry=Entry(script="train.py"))

    assert "plan.shm_size" not in found(recipe(training=SHORT, cluster=on(A100, shm_size="2g"), data=data))  # threads
    finding = found(asked)["plan.shm_size"]
    assert "the container has 2 GiB" in finding.message
    assert finding.edits[0].overrides == ("cluster.shm_size=64g",)


def test_spot_without_checkpoints_is_refused() -> None:
    assert found(recipe(training=SHORT, cluster=on(A100, tier="spot")))["plan.spot_checkpoint"].level == "error"


def test_spot_checkpoints_belong_in_a_mounted_output() -> None:
    # Azure/MachineLearningNotebooks issue 1575: ./outputs is not restored after pre-emption.
    saving = Checkpoint(directory="./outputs", interval_steps=10)
    asked = recipe(training=SHORT, cluster=on("Standard_ND96asr_v4", 2, tier="spot"), checkpoint=saving)

    assert found(asked)["plan.checkpoint_directory"].level == "error"


def test_checkpoints_under_tmp_on_azure_are_lost() -> None:
    # MicrosoftDocs/azure-docs issue 118263.
    saving = Checkpoint(directory="/tmp/ckpt", interval_steps=10)

    assert (
        "lost"
        in found(recipe(training=SHORT, cluster=on(A100), checkpoint=saving))["plan.checkpoint_directory"].message
    )
    assert make_plan(recipe(checkpoint=saving)).findings == ()


def test_a_dearer_plan_than_the_budget_is_refused() -> None:
    asked = recipe(LLAMA2_7B, training=replace(SHORT, train_steps=100_000), cluster=on(H100, 4))
    asked = replace(asked, parallelism=Parallelism(engine="fsdp", zero_stage=3), limits=Limits(budget_dollars=1))

    assert "is more than limits.budget_dollars" in found(asked)["plan.budget"].message


def test_an_unknown_price_is_said() -> None:
    assert (
        "price of Standard_ND128isr_GB300_v6 is unknown"
        in found(recipe(training=SHORT, cluster=on("Standard_ND128isr_GB300_v6")))["plan.price_unknown"].message
    )


def test_five_faults_are_reported_at_once() -> None:
    layout = Parallelism(engine="ddp", tensor_parallel_size=3, pipeline_parallel_size=5)
    training = Training(seq_length=256, global_batch_size=7, train_steps=1, train_tokens=1)

    faults = refused(recipe(training=training, parallelism=layout, cluster=on(H100)))
    assert set(faults) >= {
        "plan.tensor_heads",
        "plan.pipeline_layers",
        "plan.world_size",
        "plan.engine_ddp",
        "plan.duration",
        "plan.sequence_length",
    }


def test_overrides_apply_numbers_words_and_null() -> None:
    changed = apply_overrides(
        recipe(), ("training.micro_batch_size=4", "parallelism.engine=fsdp", "cluster.processes_per_instance=null")
    )

    assert (changed.training.micro_batch_size, changed.parallelism.engine) == (4, "fsdp")
    assert changed.cluster.processes_per_instance is None


def test_a_utilisation_beyond_the_peak_is_said_to_be_a_convention() -> None:
    # nanoGPT pull 464: an MFU of 104 % was printed and believed.
    training = Training(seq_length=131_072, global_batch_size=4, train_steps=10)
    model = replace(LLAMA3_8B, max_position_embeddings=131_072, num_hidden_layers=8)
    fast = {"cudnn_attention_blackwell": 0.8, "attention_backward": 1.1}
    asked = recipe(
        model,
        training=training,
        parallelism=Parallelism(engine="fsdp", zero_stage=3),
        cluster=on("Standard_ND128isr_GB300_v6"),
        calibration=fast,
    )

    plan = make_plan(asked)
    assert plan.time.mfu is not None
    assert plan.time.mfu > 1
    (finding,) = [finding for finding in plan.findings if finding.code == "plan.mfu"]
    assert finding.level == "warning"
    assert "131072 x 131072 scores" in finding.message


def test_recomputing_fused_attention_costs_time_and_frees_nothing() -> None:
    training = replace(SHORT, seq_length=2048)
    selective = replace(training, activation_checkpointing="selective")
    saving, plain = (recipe(GPT3_175B, training=asked, cluster=on(A100)) for asked in (selective, training))

    assert found(saving)["plan.selective_fused"].level == "note"
    assert "plan.selective_fused" not in found(plain)
    with_recompute, without = (bare_plan(asked) for asked in (saving, plain))
    assert with_recompute.time.step_seconds > without.time.step_seconds
    assert with_recompute.memory.bytes_per_gpu == pytest.approx(without.memory.bytes_per_gpu, rel=0.01)
