"""Planned step times against what users reported (the source stands beside each case)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from launcher.catalog import accelerators
from launcher.plan.calibration import shipped
from launcher.plan.flops import hardware_flops_per_token, model_flops_per_token
from launcher.plan.planner import make_plan
from launcher.plan.stacks import DEEPSPEED, FSDP
from launcher.plan.step_time import step, step_lines
from launcher.recipe.schema import Cluster, Model, Parallelism, Training
from tests.plan.recipes import GPT3_175B, on, recipe
from tests.plan.workloads import (
    BLOOM_181B,
    COMPOSER,
    LLAMA3_8B,
    LLAMA_7B,
    MEGATRON,
    MEGATRON_DEEPSPEED,
    TORCHTITAN,
    gpt,
    layout,
    llama,
    on_gpus,
    workload,
)

if TYPE_CHECKING:
    from launcher.plan.workload import Shape, Workload

MPT_VOCAB = 50368


def mpt(layers: int, hidden: int, heads: int) -> Shape:
    return replace(gpt(layers, hidden, heads, MPT_VOCAB), has_biases=False)


def tokens_per_second_per_gpu(work: Workload) -> float:
    return work.global_batch * work.seq / step(work, shipped()).seconds / work.layout.world


def test_llama_7b_hsdp_on_128_a100() -> None:
    # foundation-model-stack/fms-fsdp README: 4,550 tokens/s a GPU, 400 Gb/s a node.
    axes = replace(layout(128, zero_stage=3), shard_group=8)
    work = workload(LLAMA_7B, TORCHTITAN, on_gpus("A100-80GB", network=50), axes, seq=4096, micro=2, is_compiled=True)

    assert tokens_per_second_per_gpu(work) == pytest.approx(4550, rel=0.25)
    flops = model_flops_per_token(LLAMA_7B, 4096) + 6 * 32000 * 4096  # with the input embedding, as there
    assert 4550 * flops / 312e12 == pytest.approx(0.684, abs=0.005)


def test_mfu_is_against_the_dense_peak() -> None:
    # fms-fsdp issue 89: 9,600 tokens/s of a 7B on H100 were divided by the sparse peak, 1,979 TFLOP/s.
    peak = accelerators.find("H100").peak_flops("bf16")
    assert peak is not None
    assert peak == pytest.approx(989.4e12)

    # 6 P + 12 L h s counts the input embedding, which costs nothing (131 M of 6.74 B parameters): we leave it out.
    flops = model_flops_per_token(LLAMA_7B, 4096) + 6 * 32000 * 4096
    assert flops == pytest.approx(46.9e9, rel=0.001)
    assert 9600 * flops / peak == pytest.approx(0.455, abs=0.007)


@pytest.mark.parametrize("stack", [COMPOSER, FSDP], ids=["composer", "ours"])
def test_mpt_7b_on_one_node(stack: Any) -> None:
    # mosaicml/llm-foundry benchmarking README: 37,130 tokens/s, 5.30 s, MFU 64.2 %.
    axes = layout(8, zero_stage=3)
    work = workload(mpt(32, 4096, 32), stack, on_gpus("A100-80GB"), axes, seq=2048, micro=6, micros=2)

    assert step(work, shipped()).seconds == pytest.approx(5.30, rel=0.25)
    assert 37_130 / 8 * model_flops_per_token(work.shape, 2048) / 312e12 == pytest.approx(0.642, abs=0.003)


def test_mpt_70b_scales_as_reported() -> None:
    # The same table: tokens/s a GPU; 4.8 % lost from 128 to 512 GPUs.
    reported = {64: 1039, 128: 1058, 256: 1035, 512: 1007}
    planned = {}
    for gpus in reported:
        axes = layout(gpus, zero_stage=3)
        keys: dict[str, Any] = {"micros": 4 if gpus == 64 else 1, "recompute": "full"}
        hardware = on_gpus("H100", network=400)
        work = workload(mpt(80, 8192, 64), COMPOSER, hardware, axes, seq=2048, micro=8, **keys)
        planned[gpus] = tokens_per_second_per_gpu(work)

    for gpus, tokens in reported.items():
        assert planned[gpus] == pytest.approx(tokens, rel=0.25)
    assert 0 <= 1 - planned[512] / planned[128] <= 0.12
    assert all(planned[2 * gpus] <= 1.03 * planned[gpus] for gpus in (64, 128, 256))  # nothing gains from more nodes
    assert 8 * 512 * 2048 / planned[512] / 512 == pytest.approx(16.3, rel=0.25)


BLOOM = {(8, 6, 4, 2048): 114.11, (8, 12, 4, 2048): 117.07, (8, 2, 1, 2016): 145.45, (4, 12, 2, 2048): 110.48}
BLOOM |= {(2, 24, 1, 2048): 119.53}
"""bigscience chronicles-prequel: seconds by tensor, pipeline, micro batch, global batch; 384 A100, 50 Gb/s a GPU."""


def bloom(tensor: int, pipeline: int, micro: int, sequences: int) -> Workload:
    axes = layout(384, tensor=tensor, pipeline=pipeline, zero_stage=1)
    hardware = on_gpus("A100-80GB", network=50)
    keys: dict[str, Any] = {"recompute": "full", "has_flash": False, "micros": sequences // axes.data // micro}
    return workload(BLOOM_181B, MEGATRON_DEEPSPEED, hardware, axes, seq=2048, micro=micro, **keys)


def test_bloom_layouts_take_and_rank_as_reported() -> None:
    planned = {key: step(bloom(*key), shipped()).seconds for key in BLOOM}

    for key, seconds in BLOOM.items():
        assert planned[key] == pytest.approx(seconds, rel=0.25)
    order = sorted(planned, key=lambda key: planned[key] / key[3])
    assert (4, 12, 2, 2048) in order[:2]
    assert order[-1] == (8, 2, 1, 2016)


def test_recompute_counts_for_hfu_and_not_for_mfu() -> None:
    # 96 B s l h^2 (1 + s/6h + V/16lh) (Narayanan et al., equation 3) is hardware work; 72 (... V/12lh) the model's.
    work = bloom(8, 6, 4, 2048)
    tokens, seconds = 2048 * 2048, 114.11
    hidden, layers, vocab = 14336, 72, 250880

    megatron = 96 * tokens * layers * hidden**2 * (1 + 2048 / (6 * hidden) + vocab / (16 * layers * hidden))
    assert megatron / seconds / 384 / 1e12 == pytest.approx(141.28, abs=0.2)
    assert tokens * hardware_flops_per_token(work) / seconds / 384 / 312e12 == pytest.approx(0.453, abs=0.006)
    assert tokens * model_flops_per_token(work.shape, 2048) / seconds / 384 / 312e12 == pytest.approx(0.34, abs=0.005)


@pytest.mark.parametrize("stack", [TORCHTITAN, FSDP], ids=["torchtitan", "ours"])
@pytest.mark.parametrize(
    ("gpus", "is_compiled", "tokens"), [(8, False, 5762), (8, True, 6667), (128, False, 5605), (128, True, 6514)]
)
def test_llama3_8b_eager_and_compiled(stack: Any, gpus: int, is_compiled: bool, tokens: float) -> None:
    # torchtitan benchmarks/llama3_h100_202412_torchtitan.md.
    assert tokens_per_second_per_gpu(titan(stack, gpus, is_compiled=is_compiled)) == pytest.approx(tokens, rel=0.25)


def titan(stack: Any, gpus: int, *, is_compiled: bool) -> Workload:
    axes = layout(gpus, zero_stage=3)
    keys: dict[str, Any] = {"recompute": "selective-op", "is_compiled": is_compiled}
    return workload(LLAMA3_8B, stack, on_gpus("H100-96GB", network=400), axes, seq=8192, micro=2, **keys)


def test_compiling_pays_and_more_nodes_cost_a_little() -> None:
    eager, compiled = (tokens_per_second_per_gpu(titan(TORCHTITAN, 8, is_compiled=flag)) for flag in (False, True))
    many = tokens_per_second_per_gpu(titan(TORCHTITAN, 128, is_compiled=False))

    assert compiled > 1.03 * eager  # measured 1.157
    assert 0 <= 1 - many / eager <= 0.08  # measured 0.027
    assert model_flops_per_token(LLAMA3_8B, 8192) == pytest.approx(57.9e9, rel=0.002)


@pytest.mark.parametrize(
    ("shape", "gpus", "tensor", "pipeline", "tokens"),
    [
        # NVIDIA/NeMo-Framework-Launcher examples/README.md, fp8.
        (LLAMA_7B, 8, 1, 1, 16_154),
        (llama(40, 5120, 40, 40, 13824, 32000), 16, 1, 4, 8344),
        (llama(80, 8192, 64, 8, 28672, 32000), 64, 4, 4, 1659),
    ],
    ids=["7b", "13b", "70b"],
)
def test_fp8_runs(shape: Shape, gpus: int, tensor: int, pipeline: int, tokens: float) -> None:
    axes = layout(gpus, tensor=tensor, pipeline=pipeline, zero_stage=1, has_sequence_parallel=tensor > 1)
    keys: dict[str, Any] = {"precision": "fp8", "is_compiled": True, "micros": 128 // axes.data}
    work = workload(shape, MEGATRON, on_gpus("H100", network=400), axes, seq=4096, micro=1, **keys)

    assert tokens_per_second_per_gpu(work) == pytest.approx(tokens, rel=0.3)


def test_fp8_utilisation_is_against_the_fp8_peak() -> None:
    shape = llama(80, 8192, 64, 8, 28672, 32000)
    tflops = model_flops_per_token(shape, 4096) * 1659 / 1e12

    assert tflops == pytest.approx(740, rel=0.01)
    peak = accelerators.find("H100").peak_flops("fp8")
    assert peak is not None
    assert tflops * 1e12 / peak == pytest.approx(0.374, abs=0.005)


@pytest.mark.parametrize(("tokens", "days"), [(16_154, 7.0), (8344, 13.5), (1659, 68.1)])
def test_days_of_ten_trillion_tokens_on_1024_gpus(tokens: float, days: float) -> None:
    # The same table: estimated days for 10 T tokens on 1,024 GPUs.
    assert 1e13 / (tokens * 1024) / 86_400 == pytest.approx(days, rel=0.02)


def test_utilisation_of_one_gpu_is_never_read_against_anothers_peak() -> None:
    # nanoGPT pull 464: an H100 run was shown as 104 % of an A100; nanochat pull 147: A100 peaks halved to 156.
    peaks = {name: accelerators.find(name).peak_flops("bf16") for name in ("A100-80GB", "H100")}

    assert peaks == {"A100-80GB": 312e12, "H100": 989.4e12}
    assert pytest.approx(0.328, abs=0.001) == 1.04 * 312e12 / 989.4e12


def test_an_unknown_gpu_has_no_utilisation() -> None:
    cluster = Cluster(instance_type="local_gpu", accelerator="RTXPRO6000BSE")
    plan = make_plan(recipe(cluster=cluster))

    assert plan.time.mfu is None


def test_an_18b_with_tensor_parallelism() -> None:
    # deepspeedai/Megatron-DeepSpeed issue 98: 50.51 sequences/s, 2.53 s a step of 128.
    axes = layout(128, tensor=8)
    keys: dict[str, Any] = {"recompute": "full", "has_flash": False}
    work = workload(gpt(40, 6144, 48, 51200), DEEPSPEED, on_gpus("A100-80GB"), axes, seq=2048, micro=8, **keys)

    assert step(work, shipped()).seconds == pytest.approx(2.53, rel=0.3)
    mfu = 128 * 2048 * model_flops_per_token(work.shape, 2048) / 2.53 / 128 / 312e12
    hfu = 128 * 2048 * hardware_flops_per_token(work) / 2.53 / 128 / 312e12
    assert 0.286 <= mfu <= 0.305
    assert 0.38 <= hfu <= 0.405


@pytest.mark.parametrize(("micro", "gpus"), [(1, 1), (8, 1), (1, 8), (8, 8)])
def test_mfu_does_not_depend_on_how_the_same_tokens_are_cut(micro: int, gpus: int) -> None:
    # nanoGPT, litgpt, OLMo-core, nanochat: work of one micro batch was divided by the time of a whole step.
    training = Training(seq_length=2048, global_batch_size=64, micro_batch_size=micro, train_steps=1)
    cluster = on("Standard_NC24ads_A100_v4") if gpus == 1 else on("Standard_ND96amsr_A100_v4")
    model = Model(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, vocab_size=50304)
    plan = make_plan(recipe(model, training=training, cluster=cluster))

    work = plan.batch.tokens_per_step * plan.time.flops_per_token
    assert plan.time.mfu == pytest.approx(work / plan.time.step_seconds / gpus / 312e12)
    assert plan.time.mfu is not None
    assert plan.time.mfu < 1


def qwen_on_a10(nodes: int, network: float, *, is_infiniband: bool) -> Workload:
    # Qwen2-1.5B, deepspeedai/DeepSpeed issue 5770: 2.46 s on one node of 2 A10, 8.68 s on two over Ethernet.
    hardware = on_gpus("A10", node=2, network=network / 2, is_infiniband=is_infiniband)
    shape = llama(28, 1536, 12, 2, 8960, 151936, is_tied=True)
    return workload(shape, DEEPSPEED, hardware, layout(2 * nodes, zero_stage=3), seq=2048, micro=1)


def test_zero3_over_ethernet_is_slower_than_one_node() -> None:
    alone = step(qwen_on_a10(1, 10, is_infiniband=False), shipped()).seconds
    joined = step(qwen_on_a10(2, 10, is_infiniband=False), shipped()).seconds
    fast = step(qwen_on_a10(2, 200, is_infiniband=True), shipped()).seconds

    assert 2 <= joined / alone <= 6
    assert fast / alone < 1.3


def test_a_network_bound_plan_says_so_with_its_bytes() -> None:
    model = Model(
        model_type="llama",
        hidden_size=1536,
        num_hidden_layers=28,
        num_attention_heads=12,
        num_key_value_heads=2,
        intermediate_size=8960,
        vocab_size=151936,
        max_position_embeddings=2048,
    )
    training = Training(seq_length=512, global_batch_size=2, train_steps=10, precision="fp16")
    layout_ = Parallelism(engine="deepspeed", zero_stage=3)
    asked = recipe(model, training=training, parallelism=layout_, cluster=on("Standard_NC4as_T4_v3", 2))
    plan = make_plan(asked)

    (found,) = [finding for finding in plan.findings if finding.code == "plan.network_bound"]
    assert "network bound" in found.message
    (row,) = [row for row in plan.traffic if row.link == "Ethernet"]
    # 3 x 2 bytes x 1.54 B parameters x (n - 1) / n.
    assert row.bytes_per_step == pytest.approx(3 * 2 * 1.5437e9 / 2, rel=0.01)


def test_175b_with_offload_on_azure() -> None:
    # DeepSpeed blog of 2022-07-26: 204.49 TFLOP/s a GPU (with recompute): 145.6 tokens/s a GPU.
    axes = layout(256, zero_stage=3, offload_optimizer=True, offload_activations=True)
    keys: dict[str, Any] = {"recompute": "full", "precision": "fp16", "has_flash": False}
    work = workload(gpt(96, 12288, 96, 50304), DEEPSPEED, on_gpus("A100-80GB"), axes, seq=512, micro=32, **keys)

    assert 95 <= tokens_per_second_per_gpu(work) <= 190
    assert 204.49e12 / hardware_flops_per_token(work) == pytest.approx(145.6, rel=0.01)
    assert 145.6 * model_flops_per_token(work.shape, 512) / 312e12 == pytest.approx(0.492, abs=0.005)


def test_lines_of_a_step_add_up_and_name_each_cause() -> None:
    work = bloom(4, 12, 2, 2048)
    taken = step(work, shipped())
    lines = step_lines(work, taken)

    assert sum(line.seconds for line in lines) == pytest.approx(taken.seconds)
    assert {"matrix products", "attention", "recompute (full)", "tensor-parallel exchange", "pipeline bubble"} <= {
        line.name for line in lines
    }


def test_context_parallelism_is_not_free() -> None:
    layout_ = Parallelism(engine="fsdp", zero_stage=3, context_parallel_size=8)
    training = Training(seq_length=2048, global_batch_size=64, train_steps=1)
    plan = make_plan(
        recipe(GPT3_175B, training=training, parallelism=layout_, cluster=on("Standard_ND96isr_H100_v5", 8))
    )

    (exchange,) = [line for line in plan.time.lines if line.name == "context-parallel exchange"]
    assert exchange.seconds > 0.01 * plan.time.step_seconds
