"""Low-rank adapters (LoRA, arXiv:2106.09685): which linear layers take one, and how many parameters that adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.families.decoder import shape_of

if TYPE_CHECKING:
    from launcher.recipe.schema import Lora, Model


Layers = dict[str, tuple[tuple[int, int], ...]]
"""Name -> inputs and outputs of each layer of that name."""


def linear_layers(model: Model) -> Layers:
    """Inputs and outputs of a decoder layer's linear layers, by the last part of transformers' names.

    Two layers may share a name (GPT-2's ``c_proj``). Experts are stacked in one tensor and are none of them.
    """
    shape = shape_of(model)
    hidden, ffn = shape.hidden, shape.ffn
    query, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    if model.model_type == "gpt2":
        return {
            "c_attn": ((hidden, 3 * hidden),),
            "c_proj": ((hidden, hidden), (ffn, hidden)),
            "c_fc": ((hidden, ffn),),
        }
    if model.model_type == "gpt_neox":
        return {
            "query_key_value": ((hidden, 3 * hidden),),
            "dense": ((hidden, hidden),),
            "dense_h_to_4h": ((hidden, ffn),),
            "dense_4h_to_h": ((ffn, hidden),),
        }
    inward: Layers = dict.fromkeys(("k_proj", "v_proj"), ((hidden, keys),))
    attention: Layers = {"q_proj": ((hidden, query),), **inward, "o_proj": ((query, hidden),)}
    gated: Layers = {"gate_proj": ((hidden, ffn),), "up_proj": ((hidden, ffn),), "down_proj": ((ffn, hidden),)}
    return attention | ({} if shape.experts else gated)


def target_modules(model: Model, lora: Lora) -> tuple[str, ...]:
    """The layers that take an adapter: those asked for, or all there are."""
    return lora.target_modules or tuple(linear_layers(model))


def adapter_parameters(model: Model, lora: Lora) -> int:
    """Parameters of all adapters: rank x (inputs + outputs) of each adapted layer; 0 where all weights are trained."""
    layers = linear_layers(model)
    widths = sum(sum(pair) for name in target_modules(model, lora) for pair in layers.get(name, ()))
    return lora.rank * widths * model.num_hidden_layers
