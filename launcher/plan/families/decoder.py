"""Dense parts of a decoder: parameters of embedding, positions, attention, feed-forward, norms and output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.plan import ParameterLine
from launcher.plan.workload import Shape

if TYPE_CHECKING:
    from launcher.recipe.schema import Model

GATED = {"llama", "mistral", "qwen3", "mixtral"}
"""Model types with SwiGLU, RMSNorm, rotary positions and no biases (transformers ``modeling_*.py``)."""


def shape_of(model: Model) -> Shape:
    """The recipe's ``model`` section with every width resolved."""
    ffn = model.intermediate_size or 4 * model.hidden_size
    is_gated = model.model_type in GATED
    return Shape(
        layers=model.num_hidden_layers,
        hidden=model.hidden_size,
        heads=model.num_attention_heads,
        kv_heads=model.num_key_value_heads or model.num_attention_heads,
        head_dim=model.head_dim or model.hidden_size // model.num_attention_heads,
        ffn=ffn,
        is_gated=is_gated,
        vocab=model.vocab_size,
        is_tied=model.tie_word_embeddings,
        positions=model.max_position_embeddings if model.model_type == "gpt2" else 0,
        has_biases=not is_gated,
        has_layer_norm=not is_gated,
        has_qk_norm=model.model_type == "qwen3",
        has_parallel_residual=model.model_type == "gpt_neox",
        has_tanh_gelu=model.model_type == "gpt2" and model.hidden_act in (None, "gelu_new"),
        experts=model.num_local_experts,
        experts_per_token=model.num_experts_per_tok if model.num_local_experts else 0,
        expert_ffn=(model.moe_intermediate_size or ffn) if model.num_local_experts else 0,
        dropout=model.dropout > 0,
    )


def attention_parameters(shape: Shape) -> int:
    """One layer's query, key, value and output projections, with biases and query/key norms where the family has them.

    h*a*d (query) + 2*h*k*d (key, value) + a*d*h (output); biases a*d + 2*k*d + h; query/key norms 2*d.
    """
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    matrices = 2 * shape.hidden * query + 2 * shape.hidden * key
    biases = query + 2 * key + shape.hidden if shape.has_biases else 0
    return matrices + biases + (2 * shape.head_dim if shape.has_qk_norm else 0)


def feed_forward_parameters(shape: Shape) -> int:
    """One dense layer's feed-forward block: 3*h*f gated, else 2*h*f, and biases f + h."""
    matrices = (3 if shape.is_gated else 2) * shape.hidden * shape.ffn
    return matrices + (shape.ffn + shape.hidden if shape.has_biases else 0)


def norm_parameters(shape: Shape) -> int:
    """One norm: weight, and bias for LayerNorm."""
    return shape.hidden * (2 if shape.has_layer_norm else 1)


def dense_layers(shape: Shape) -> int:
    """Layers with a dense feed-forward block."""
    return shape.layers - shape.moe_layers


def dense_lines(shape: Shape) -> tuple[ParameterLine, ...]:
    """Every part but experts and router, named."""
    output = 0 if shape.is_tied else shape.vocab * shape.hidden
    lines = {
        "embedding": shape.vocab * shape.hidden,
        "positions": shape.positions * shape.hidden,
        "attention": shape.layers * attention_parameters(shape),
        "feed-forward": dense_layers(shape) * feed_forward_parameters(shape),
        "norms": (2 * shape.layers + 1) * norm_parameters(shape),
        "output": output,
    }
    return tuple(ParameterLine(name=name, parameters=count) for name, count in lines.items() if count)
