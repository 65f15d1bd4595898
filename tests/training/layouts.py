"""Layouts of the equality and resume tests: how many ranks, and what ``parallelism`` says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.training.runs import tiny_recipe

if TYPE_CHECKING:
    from launcher.recipe.schema import Recipe

Layout = tuple[int, dict[str, Any]]

_T, _P, _C, _E = (f"{axis}_parallel_size" for axis in ("tensor", "pipeline", "context", "expert"))
FSDP: dict[str, Layout] = {
    "fsdp": (2, {"zero_stage": 3}),
    "fsdp-zero2": (2, {"zero_stage": 2}),
    "fsdp-zero0": (2, {"zero_stage": 0}),
    "hsdp": (4, {"zero_stage": 3, "shard_group_size": 2}),
    "tensor": (2, {_T: 2}),
    "sequence": (2, {_T: 2, "sequence_parallel": True}),
    "context": (2, {_C: 2, "zero_stage": 3}),
    "gpipe": (2, {_P: 2, "pipeline_schedule": "gpipe"}),
    "1f1b": (2, {_P: 2}),
    "interleaved": (2, {_P: 2, "virtual_pipeline_parallel_size": 2}),
    "zero-bubble": (2, {_P: 2, "pipeline_schedule": "zero_bubble"}),
    "zero-bubble-v": (2, {_P: 2, "virtual_pipeline_parallel_size": 2, "pipeline_schedule": "zero_bubble"}),
    "data-tensor": (4, {_T: 2, "zero_stage": 3}),
    "data-context": (4, {_C: 2, "zero_stage": 3}),
    "data-pipeline": (4, {_P: 2, "zero_stage": 2}),
    "tensor-context": (4, {_T: 2, _C: 2, "sequence_parallel": True}),
    "tensor-pipeline": (4, {_T: 2, _P: 2, "sequence_parallel": True}),
    "context-pipeline": (4, {_C: 2, _P: 2, "zero_stage": 3}),
    "data-tensor-pipeline": (8, {_T: 2, _P: 2, "sequence_parallel": True, "zero_stage": 2}),
}
EXPERTS: dict[str, Layout] = {
    "expert": (2, {_E: 2}),
    "expert-data": (4, {_E: 2, "zero_stage": 3}),
    "expert-tensor": (4, {_E: 2, _T: 2, "sequence_parallel": True, "zero_stage": 2}),
    "expert-pipeline": (4, {_E: 2, _P: 2, "zero_stage": 2}),
    "expert-context": (4, {_E: 2, _C: 2, "zero_stage": 3}),
}
DEEPSPEED: dict[str, Layout] = {
    "zero0": (2, {"zero_stage": 0}),
    "zero1": (2, {"zero_stage": 1}),
    "zero2": (2, {"zero_stage": 2}),
    "zero3": (2, {"zero_stage": 3}),
    "zero2-offload": (2, {"zero_stage": 2, "offload_optimizer": "cpu"}),
    "zero3-offload": (2, {"zero_stage": 3, "offload_optimizer": "cpu", "offload_parameters": "cpu"}),
    "tensor": (2, {_T: 2}),
    "sequence": (2, {_T: 2, "sequence_parallel": True, "zero_stage": 1}),
    "context": (2, {_C: 2, "zero_stage": 2}),
    "context-zero3": (2, {_C: 2, "zero_stage": 3}),
    "pipeline": (2, {_P: 2}),
    "pipeline-zero1": (2, {_P: 2, "zero_stage": 1}),
    "data-tensor": (4, {_T: 2, "sequence_parallel": True, "zero_stage": 2}),
    "data-context": (4, {_C: 2, "zero_stage": 3}),
    "data-pipeline": (4, {_P: 2, "zero_stage": 1}),
    "tensor-context": (4, {_T: 2, _C: 2, "zero_stage": 2}),
    "tensor-pipeline": (4, {_T: 2, _P: 2, "zero_stage": 1}),
    "sequence-pipeline": (4, {_T: 2, _P: 2, "sequence_parallel": True}),
}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2"},
    "gpt_neox": {"model_type": "gpt_neox", "intermediate_size": 64},
    "llama": {"model_type": "llama", "intermediate_size": 64, "num_key_value_heads": 2, "tie_word_embeddings": False},
    "mistral": {"model_type": "mistral", "intermediate_size": 64, "num_key_value_heads": 2},
    "qwen3": {"model_type": "qwen3", "intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 16},
    "mixtral": {
        "model_type": "mixtral", "intermediate_size": 64, "num_key_value_heads": 2, "num_local_experts": 4,
        "router_aux_loss_coef": 0.1,
    },
}  # fmt: skip
"""Tiny models of every type; small enough that twenty steps take a second, different enough to take every path."""


def laid_out(layout: Layout, engine: str, *, kind: str = "gpt2", **changes: Any) -> Recipe:
    """A tiny recipe of four layers in ``layout``; clipping is on, so that a wrong norm would show."""
    ranks, parallelism = layout
    changes["training"] = {"gradient_clipping": 0.3, **changes.get("training", {})}
    return tiny_recipe(
        model={"num_hidden_layers": 4, **MODELS[kind], **changes.pop("model", {})},
        parallelism={"engine": engine, **parallelism},
        cluster={"processes_per_instance": ranks},
        **changes,
    )


ALONE: Layout = (1, {})
"""One process that divides nothing."""
