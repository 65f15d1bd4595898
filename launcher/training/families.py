"""Which transformers class makes each model type, where it keeps its parts, and its configuration from a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launcher.recipe.schema import Model, ModelType


@dataclass(frozen=True, kw_only=True)
class Family:
    """The parts of a decoder, by the names transformers gives them."""

    model: str
    """Class of ``transformers.models.TYPE.modeling_TYPE``, with its language-modelling head."""
    configuration: str
    """Class of ``transformers.models.TYPE.configuration_TYPE``."""
    trunk: str
    """Attribute of the model that holds everything but the head; its ``base_model_prefix``."""
    embedding: str = "embed_tokens"
    positions: str | None = None
    """Learned position table, where there is one."""
    dropout: str | None = None
    """Dropout after the embedding, where there is one."""
    layers: str = "layers"
    norm: str = "norm"
    rotary: str | None = "rotary_emb"
    """Module that makes rotary cosines and sines, where there is one."""
    attention: str = "self_attn"
    """Attention block of a layer."""


FAMILIES: dict[ModelType, Family] = {
    "gpt2": Family(
        model="GPT2LMHeadModel", configuration="GPT2Config", trunk="transformer", embedding="wte", positions="wpe",
        dropout="drop", layers="h", norm="ln_f", rotary=None, attention="attn",
    ),
    "gpt_neox": Family(
        model="GPTNeoXForCausalLM", configuration="GPTNeoXConfig", trunk="gpt_neox", embedding="embed_in",
        dropout="emb_dropout", norm="final_layer_norm", attention="attention",
    ),
    "llama": Family(model="LlamaForCausalLM", configuration="LlamaConfig", trunk="model"),
    "mistral": Family(model="MistralForCausalLM", configuration="MistralConfig", trunk="model"),
    "qwen3": Family(model="Qwen3ForCausalLM", configuration="Qwen3Config", trunk="model"),
    "mixtral": Family(model="MixtralForCausalLM", configuration="MixtralConfig", trunk="model"),
}  # fmt: skip


def configuration_values(model: Model) -> dict[str, Any]:
    """The recipe's shape in the words of the model type's ``config.json``; what is absent is the type's own default."""
    values = _shape(model) | _FAMILY_VALUES[model.model_type](model)
    if model.hidden_act is not None:
        values["activation_function" if model.model_type == "gpt2" else "hidden_act"] = model.hidden_act
    return values


def make_configuration(model: Model, **more: Any) -> Any:
    """The model's transformers configuration; ``more`` goes over what the recipe says."""
    module = import_module(f"transformers.models.{model.model_type}.configuration_{model.model_type}")
    kind = getattr(module, FAMILIES[model.model_type].configuration)
    return kind(**configuration_values(model) | more)


def make_model(configuration: Any, model: Model) -> Any:
    """The transformers model of ``configuration``; its weights as whoever's context this is called in makes them."""
    module = import_module(f"transformers.models.{model.model_type}.modeling_{model.model_type}")
    return getattr(module, FAMILIES[model.model_type].model)(configuration)


def _shape(model: Model) -> dict[str, Any]:
    """What every model type calls the same."""
    return {
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.num_hidden_layers,
        "num_attention_heads": model.num_attention_heads,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_position_embeddings,
        "tie_word_embeddings": model.tie_word_embeddings,
        "initializer_range": model.initializer_range,
        "use_cache": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


def _gpt2(model: Model) -> dict[str, Any]:
    dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), model.dropout)
    return {"n_inner": model.intermediate_size, "layer_norm_epsilon": model.norm_eps, **dropouts}


def _gpt_neox(model: Model) -> dict[str, Any]:
    return {
        "intermediate_size": model.intermediate_size or 4 * model.hidden_size,
        "layer_norm_eps": model.norm_eps,
        "hidden_dropout": model.dropout,
        "attention_dropout": model.dropout,
        # GPT-NeoX rotates a quarter of each head (arXiv:2204.06745, section 2.1).
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_theta, "partial_rotary_factor": 0.25},
    }


def _llama(model: Model) -> dict[str, Any]:
    return {
        "intermediate_size": model.intermediate_size or 4 * model.hidden_size,
        "num_key_value_heads": model.num_key_value_heads or model.num_attention_heads,
        "head_dim": model.head_dim or model.hidden_size // model.num_attention_heads,
        "rms_norm_eps": model.norm_eps,
        "attention_dropout": model.dropout,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_theta},
    }


def _mistral(model: Model) -> dict[str, Any]:
    return _llama(model) | {"sliding_window": None}


def _mixtral(model: Model) -> dict[str, Any]:
    width = model.moe_intermediate_size or model.intermediate_size or 4 * model.hidden_size
    return _mistral(model) | {
        "intermediate_size": width,
        "num_local_experts": model.num_local_experts,
        "num_experts_per_tok": model.num_experts_per_tok,
        "router_aux_loss_coef": model.router_aux_loss_coef,
    }


_FAMILY_VALUES = {
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _mistral,
    "qwen3": _llama,
    "mixtral": _mixtral,
}
