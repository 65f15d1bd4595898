"""Recipes the planner's tests start from, built without Hydra."""

from __future__ import annotations

from launcher.catalog import vm_sizes
from launcher.recipe.schema import Cluster, Data, Environment, Model, Parallelism, Recipe, Training

TINY = Model(
    model_type="gpt2",
    hidden_size=64,
    num_hidden_layers=4,
    num_attention_heads=4,
    vocab_size=256,
    max_position_embeddings=128,
)
GPT3_175B = Model(
    model_type="gpt2",
    hidden_size=12288,
    num_hidden_layers=96,
    num_attention_heads=96,
    vocab_size=50257,
    max_position_embeddings=2048,
)
LLAMA2_7B = Model(
    model_type="llama",
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    intermediate_size=11008,
    vocab_size=32000,
    max_position_embeddings=4096,
    tie_word_embeddings=False,
)
LLAMA3_8B = Model(
    model_type="llama",
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    intermediate_size=14336,
    vocab_size=128256,
    max_position_embeddings=8192,
    tie_word_embeddings=False,
)
MIXTRAL_8X7B = Model(
    model_type="mixtral",
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    intermediate_size=14336,
    vocab_size=32000,
    max_position_embeddings=32768,
    tie_word_embeddings=False,
    num_local_experts=8,
    num_experts_per_tok=2,
)


def recipe(
    model: Model = TINY,
    *,
    training: Training | None = None,
    parallelism: Parallelism | None = None,
    cluster: Cluster | None = None,
    **sections: object,
) -> Recipe:
    """A recipe that plans without findings on one CPU process, with whole sections replaced."""
    given = {"data": Data(train=("demo",)), "environment": Environment(name=fitting_environment(cluster))} | sections
    return Recipe(
        name="test",
        model=model,
        training=training or Training(seq_length=128, global_batch_size=8, train_steps=10, precision="fp32"),
        parallelism=parallelism or Parallelism(),
        cluster=cluster or Cluster(),
        **given,  # type: ignore[arg-type]
    )


def fitting_environment(cluster: Cluster | None) -> str:
    """Which of ``environments/`` runs on ``cluster``, as every shipped ``recipes/cluster`` says."""
    size = vm_sizes.find((cluster or Cluster()).instance_type)
    if size.gpus == 0:
        return "cpu"
    if "MI300X" in size.name:
        return "rocm"
    return "cuda" if size.architecture == "x86_64" else "cuda_arm64"


def on(instance_type: str, count: int = 1, **keys: object) -> Cluster:
    """``count`` Azure VMs of a size."""
    return Cluster(backend="azureml", instance_type=instance_type, instance_count=count, **keys)  # type: ignore[arg-type]
