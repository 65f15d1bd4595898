"""A rank of a large model is built on the meta device, and only its own shard ever takes memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launcher.recipe import codec
from launcher.training.decoder import build_on_meta
from tests.training.runs import rank_environments, tiny_recipe

if TYPE_CHECKING:
    from launcher.recipe.schema import Recipe


def large_recipe() -> Recipe:
    """The shape of a 1T model at a tenth of its width and a quarter of its depth, over 2 x 4 x 4 ranks."""
    return tiny_recipe(
        model={
            "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 51200,
            "max_position_embeddings": 2048,
        },
        parallelism={
            "engine": "fsdp", "zero_stage": 3, "tensor_parallel_size": 2, "pipeline_parallel_size": 4,
        },
        training={"global_batch_size": 64, "micro_batch_size": 1},
        cluster={"processes_per_instance": 32},
    )  # fmt: skip


def test_a_model_of_a_trillion_parameters_is_built_without_memory() -> None:
    shape = {
        "hidden_size": 25600, "num_hidden_layers": 128, "num_attention_heads": 160, "vocab_size": 51200,
        "max_position_embeddings": 2048,
    }  # fmt: skip
    decoder = build_on_meta(tiny_recipe(model=shape))
    # Narayanan et al., arXiv:2104.04473, table 1: 1008.0 billion; fp32 would be 4 TB.
    assert sum(parameter.numel() for parameter in decoder.parameters()) == pytest.approx(1008.0e9, rel=1e-3)
    assert all(parameter.is_meta for parameter in decoder.parameters())


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 31])
def test_building_a_rank_never_takes_twice_its_shard(tmp_path: Path, rank: int) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps(codec.encode(large_recipe())))
    script = Path(__file__).with_name("shard_memory.py")
    command = [sys.executable, str(script), str(tmp_path / "recipe.json"), str(rank)]
    (environment,) = rank_environments(1, tmp_path)
    found = subprocess.run(
        [*command, str(tmp_path / "recipe.json"), str(rank)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    measured = json.loads(found.stdout)
    # 12 h^2 a layer, and the vocabulary: 32 x 12 x 2560^2 + 51200 x 2560 = 2.65 G parameters.
    assert measured["parameters"] == pytest.approx(2.65e9, rel=0.01)
    # fp32 weights and two moments of a 32nd of them, give or take the uneven vocabulary at the pipeline's ends.
    assert measured["held"] == pytest.approx(12 * 2.65e9 / 32, rel=0.25)
    print(f"rank {rank}: holds {measured['held'] / 2**20:.0f} MiB, grew by {measured['grown'] / 2**20:.0f} MiB at most")
    assert measured["grown"] < 2 * measured["held"]
