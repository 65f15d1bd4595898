"""The plan's count of saved activations against what autograd really keeps, counted by saved-tensor hooks."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.catalog import vm_sizes
from launcher.plan import activations
from launcher.plan.batch import make_batch
from launcher.plan.topology import make_topology
from launcher.plan.workloads import accelerator_of, workload_of
from launcher.recipe.schema import Model, Parallelism, Recipe, Training

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

SEQUENCES, TOKENS = 2, 24


def recipe_of(kind: str, *, precision: str, recompute: str, engine: str, attention: str = "sdpa") -> Recipe:
    keys: dict[str, Any] = {"tie_word_embeddings": kind == "gpt2"}
    if kind in ("qwen3", "mixtral", "mistral"):
        keys["num_key_value_heads"] = 2
    if kind == "mixtral":
        keys |= {"num_local_experts": 4, "num_experts_per_tok": 2}
    model = Model(
        model_type=kind,  # type: ignore[arg-type]
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=176,
        vocab_size=320,
        max_position_embeddings=64,
        **keys,
    )
    training = Training(
        seq_length=TOKENS,
        global_batch_size=SEQUENCES,
        micro_batch_size=SEQUENCES,
        train_steps=1,
        precision=precision,  # type: ignore[arg-type]
        activation_checkpointing=recompute,  # type: ignore[arg-type]
        attention=attention,  # type: ignore[arg-type]
    )
    return Recipe(model=model, training=training, parallelism=Parallelism(engine=engine))  # type: ignore[arg-type]


def planned_bytes(recipe: Recipe) -> float:
    """Saved by all layers, the last norm and the loss (fp32 log-probabilities)."""
    size = vm_sizes.find("local_cpu")
    topology = make_topology(recipe, size)
    assert topology is not None
    batch, device = make_batch(recipe.training, topology), accelerator_of(recipe.cluster, size)
    assert batch is not None
    assert device is not None
    workload = workload_of(recipe, topology, batch, size, device)
    layers = workload.shape.layers * activations.kept_bytes(workload)
    return layers + activations.tail_bytes(workload) + 4 * workload.tokens * workload.shape.vocab


def held_bytes(recipe: Recipe) -> int:
    """Distinct storages autograd keeps, but for weights (and their 16-bit copies), buffers and the batch itself."""
    from launcher.training.batches import MicroBatch
    from launcher.training.decoder import build_in_place

    decoder = build_in_place(recipe)
    decoder.train()
    is_low = recipe.training.precision == "bf16"
    if is_low and recipe.parallelism.engine != "ddp":
        decoder.to(torch.bfloat16)
    ids = torch.randint(0, 320, (SEQUENCES, TOKENS))
    positions = torch.arange(TOKENS)[None].expand(SEQUENCES, TOKENS).contiguous()
    shapes = {tuple(weight.shape) for weight in decoder.parameters() if weight.dim() == 2}
    known = {t.untyped_storage().data_ptr() for t in (*decoder.parameters(), *decoder.buffers(), ids, positions)}
    held: dict[int, int] = {}
    kept = []

    def pack(tensor: Any) -> Any:
        pointer = tensor.untyped_storage().data_ptr()
        is_weight_copy = tensor.dtype == torch.bfloat16 and (
            tuple(tensor.shape) in shapes or tuple(tensor.shape[::-1]) in shapes
        )
        is_copy = is_weight_copy and tensor.grad_fn is not None and tensor.grad_fn.name() in WEIGHT_CASTS
        if pointer not in known and not is_copy:
            held[pointer] = tensor.untyped_storage().nbytes()
            kept.append(tensor)
        return tensor

    casting = torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_low and recipe.parallelism.engine == "ddp")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), casting:
        decoder(MicroBatch(ids, ids, positions, torch.tensor(float(ids.numel()))))
    return sum(held.values()) + angles_held_by_reference(recipe, decoder, positions)


def angles_held_by_reference(recipe: Recipe, decoder: Any, positions: Any) -> int:
    """Rotary tables that checkpointed layers hold without saving them."""
    if recipe.training.activation_checkpointing != "full" or not decoder.family.rotary:
        return 0
    is_low = recipe.training.precision == "bf16" and recipe.parallelism.engine != "ddp"
    hidden = torch.zeros(1, dtype=torch.bfloat16 if is_low else torch.float32)
    return sum(table.nbytes for table in getattr(decoder.trunk, decoder.family.rotary)(hidden, positions))


WEIGHT_CASTS = ("TBackward0", "ToCopyBackward0")


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "llama", "mistral", "qwen3", "mixtral"])
@pytest.mark.parametrize(
    ("precision", "engine"), [("fp32", "ddp"), ("bf16", "ddp"), ("bf16", "fsdp"), ("bf16", "deepspeed")]
)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_saved_activations_are_those_the_plan_counts(kind: str, precision: str, engine: str, recompute: str) -> None:
    recipe = recipe_of(kind, precision=precision, recompute=recompute, engine=engine)

    assert planned_bytes(recipe) == pytest.approx(held_bytes(recipe), rel=0.001)
