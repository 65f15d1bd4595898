"""Parameter counts, against published ones and against the models transformers builds."""

from __future__ import annotations

import pytest

from launcher.plan.families.decoder import shape_of
from launcher.plan.families.moe import active_parameters, parameter_lines, parameters
from launcher.recipe.schema import Model
from tests.plan.recipes import GPT3_175B, LLAMA2_7B, LLAMA3_8B, MIXTRAL_8X7B, TINY


def gpt2(layers: int, hidden: int, heads: int) -> Model:
    return Model(
        model_type="gpt2",
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        vocab_size=50257,
        max_position_embeddings=1024,
    )


def llama(
    layers: int, hidden: int, heads: int, kv: int, ffn: int, vocab: int, kind: str = "llama", **keys: object
) -> Model:
    return Model(
        model_type=kind,  # type: ignore[arg-type]
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        intermediate_size=ffn,
        vocab_size=vocab,
        tie_word_embeddings=False,
        **keys,  # type: ignore[arg-type]
    )


PUBLISHED = {
    # Hugging Face model cards and safetensors indices of the named models.
    "gpt2": (gpt2(12, 768, 12), 124_439_808),
    "gpt2-medium": (gpt2(24, 1024, 16), 354_823_168),
    "gpt2-large": (gpt2(36, 1280, 20), 774_030_080),
    "gpt2-xl": (gpt2(48, 1600, 25), 1_557_611_200),
    "llama-2-7b": (LLAMA2_7B, 6_738_415_616),
    "llama-2-13b": (llama(40, 5120, 40, 40, 13824, 32000), 13_015_864_320),
    "llama-2-70b": (llama(80, 8192, 64, 8, 28672, 32000), 68_976_648_192),
    "llama-3-8b": (LLAMA3_8B, 8_030_261_248),
    "llama-3-70b": (llama(80, 8192, 64, 8, 28672, 128256), 70_553_706_496),
    "llama-3-405b": (llama(126, 16384, 128, 8, 53248, 128256), 405_853_388_800),
    "qwen3-8b": (llama(36, 4096, 32, 8, 12288, 151936, "qwen3", head_dim=128), 8_190_735_360),
    "qwen3-32b": (llama(64, 5120, 64, 8, 25600, 151936, "qwen3", head_dim=128), 32_762_123_264),
    "mixtral-8x7b": (MIXTRAL_8X7B, 46_702_792_704),
    "mixtral-8x22b": (
        llama(56, 6144, 48, 8, 16384, 32000, "mixtral", num_local_experts=8, num_experts_per_tok=2),
        140_620_634_112,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_equal_the_published_count(name: str) -> None:
    model, published = PUBLISHED[name]

    assert parameters(shape_of(model)) == published


def test_the_parts_of_a_gpt_are_named() -> None:
    parts = {line.name: line.parameters for line in parameter_lines(shape_of(gpt2(12, 768, 12)))}

    # 12 layers x (4 h^2 + 4 h | 8 h^2 + 5 h | 2 norms of 2 h); vocabulary and 1024 positions of h = 768.
    assert parts == {
        "embedding": 50257 * 768,
        "positions": 1024 * 768,
        "attention": 12 * (4 * 768**2 + 4 * 768),
        "feed-forward": 12 * (8 * 768**2 + 5 * 768),
        "norms": 25 * 2 * 768,
    }


def test_a_token_passes_two_of_eight_experts() -> None:
    # Mistral AI: "46.7B total parameters but only uses 12.9B parameters per token".
    assert active_parameters(shape_of(MIXTRAL_8X7B)) == pytest.approx(12.9e9, rel=0.005)


@pytest.mark.parametrize("name", [*PUBLISHED, "tiny", "gpt3-175b", "gpt_neox"])
def test_parameters_equal_those_of_the_built_model(name: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = {
        "tiny": TINY,
        "gpt3-175b": GPT3_175B,
        "gpt_neox": Model(
            model_type="gpt_neox",
            hidden_size=512,
            num_hidden_layers=6,
            num_attention_heads=8,
            vocab_size=50304,
            tie_word_embeddings=False,
        ),
    }.get(name) or PUBLISHED[name][0]

    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(transformers_config(transformers, model))

    assert parameters(shape_of(model)) == sum(weight.numel() for weight in built.parameters())


def transformers_config(transformers: object, model: Model) -> object:
    shape = shape_of(model)
    keys: dict[str, object] = {"vocab_size": shape.vocab, "tie_word_embeddings": shape.is_tied}
    if model.model_type == "gpt2":
        keys |= {"n_embd": shape.hidden, "n_layer": shape.layers, "n_head": shape.heads, "n_inner": shape.ffn}
        keys |= {"n_positions": shape.positions}
    else:
        keys |= {"hidden_size": shape.hidden, "num_hidden_layers": shape.layers, "intermediate_size": shape.ffn}
        keys |= {"num_attention_heads": shape.heads, "head_dim": shape.head_dim}
        if model.model_type != "gpt_neox":
            keys |= {"num_key_value_heads": shape.kv_heads}
    if shape.is_moe:
        keys |= {"num_local_experts": shape.experts, "num_experts_per_tok": shape.experts_per_token}
    if model.model_type == "qwen3":
        keys |= {"attention_bias": False}
    return transformers.AutoConfig.for_model(model.model_type, **keys)  # type: ignore[attr-defined]
