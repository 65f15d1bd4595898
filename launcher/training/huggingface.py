"""Hugging Face folders as weights to begin with.

Weights are read through the same regions as our own checkpoints, so each rank reads just what it holds. Names are those
of transformers' models; where the files on the Hub differ (experts one by one, GPT-2 without its prefix, GPT-NeoX's old
head), both spellings are read.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch

from launcher.training.checkpoint.shard import Entry
from launcher.training.errors import CheckpointError
from launcher.training.families import FAMILIES, configuration_values, make_configuration, make_model
from launcher.training.pieces import Region, whole
from launcher.training.safetensors_file import read_header

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.recipe.schema import Model
    from launcher.training.checkpoint.restore import Shelf
    from launcher.training.safetensors_file import Stored

TOKENIZER = "tokenizer"
"""Folder beside the checkpoints that holds the tokenizer of the run, as transformers saves one."""
_EXPERT = re.compile(r"(model\.layers\.\d+)\.block_sparse_moe\.experts\.(\d+)\.(w[123])\.weight")
_IGNORED = re.compile(r".*(\.attn\.(bias|masked_bias)|\.attention\.(bias|masked_bias)|\.rotary_emb\.inv_freq)")
"""Buffers that old versions of transformers wrote beside the weights."""
_NOT_COMPARED = frozenset({
    "use_cache", "bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "resid_pdrop", "embd_pdrop",
    "attn_pdrop", "hidden_dropout", "attention_dropout", "max_position_embeddings", "router_aux_loss_coef", "n_inner",
})  # fmt: skip
"""What a fine-tune may set otherwise, or what the shapes of the weights already say."""
_ROPE = "rope_parameters"


def is_huggingface(folder: Path) -> bool:
    """Whether a folder holds a model as transformers saves it."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def open_huggingface(folder: Path, model: Model) -> Shelf:
    """The weights in ``folder`` under the names and regions that ``fill`` asks for.

    Raises:
        CheckpointError: the folder's ``config.json`` describes another model; every difference is named.
    """
    differences = _differences(folder, model)
    if differences:
        raise CheckpointError(f"{folder} holds another model: {'; '.join(differences)}", keys=("model",))
    shelf: Shelf = defaultdict(list)
    for path in sorted(folder.glob("*.safetensors")):
        for name, stored in read_header(path)[0].items():
            if not _IGNORED.fullmatch(name):
                entry = _entry(name, stored, model)
                shelf[entry.name, "parameter"].append(entry)
    known = _known_names(model)
    strange = sorted(name for name, _ in shelf if name not in known)
    if strange:
        more = f", and {len(strange) - 5} more" if len(strange) > 5 else ""
        raise CheckpointError(
            f"{folder} has weights that the model lacks: {', '.join(strange[:5])}{more}", keys=("model",)
        )
    return shelf


def _known_names(model: Model) -> set[str]:
    """Every parameter of the model; the head's also where it is the embedding, of which files may hold a copy."""
    with torch.device("meta"):
        return {name for name, _ in make_model(make_configuration(model), model).named_parameters()} | {
            "lm_head.weight"
        }


def _differences(folder: Path, model: Model) -> list[str]:
    """Keys of the folder's configuration that say something else than the recipe."""
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError) as error:
        return [f"its config.json cannot be read ({error})"]
    if kind != model.model_type:
        return [f"model_type is {kind}, the recipe's {model.model_type}"]
    theirs = type(make_configuration(model)).from_pretrained(folder, local_files_only=True)
    ours = {key: value for key, value in configuration_values(model).items() if key not in _NOT_COMPARED}
    pairs = {key: (getattr(theirs, key, value), value) for key, value in ours.items() if key != _ROPE}
    pairs |= _rope_pairs(theirs, ours.get(_ROPE) or {})
    window = getattr(theirs, "sliding_window", None)
    if window and window < model.max_position_embeddings:
        pairs["sliding_window"] = (
            window,
            f"attention over all max_position_embeddings={model.max_position_embeddings}",
        )
    return [
        f"{key} is {found}, the recipe's {wanted}"
        for key, (found, wanted) in pairs.items()
        if wanted is not None and found not in (wanted, None)
    ]


def _rope_pairs(theirs: Any, ours: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Theirs and ours of the rotary embedding; a kind that stretches positions (``llama3``, ``yarn``) is another."""
    found = getattr(theirs, _ROPE, None) or {}
    return {key: (found.get(key), value) for key, value in ours.items()}


def _entry(name: str, stored: Stored, model: Model) -> Entry:
    """A tensor of the Hub's files as a piece of a parameter of transformers' model."""
    expert = _EXPERT.fullmatch(name)
    if expert:
        layer, number, part = expert.groups()
        parameter, region = expert_region(part, int(number), stored.shape, model.num_local_experts)
        return Entry(stored=stored, name=f"{layer}.mlp.experts.{parameter}", kind="parameter", region=region)
    return Entry(stored=stored, name=_our_name(name, model), kind="parameter", region=whole(stored.shape))


def _our_name(name: str, model: Model) -> str:
    """The name transformers' model uses for a tensor of the Hub's files."""
    trunk = FAMILIES[model.model_type].trunk
    name = name.replace(".block_sparse_moe.gate.", ".mlp.gate.")
    if name in ("lm_head.weight", "embed_out.weight"):
        return "lm_head.weight"
    return name if name.startswith(f"{trunk}.") else f"{trunk}.{name}"


def expert_region(part: str, number: int, shape: tuple[int, ...], experts: int) -> tuple[str, Region]:
    """Where one expert's matrix lies in the stacked one: gate (w1) above up (w3), down (w2) alone."""
    if part == "w2":
        return "down_proj", Region(shape=(experts, *shape), offset=(number, 0, 0), size=(1, *shape))
    rows, columns = shape
    first = 0 if part == "w1" else rows
    region = Region(shape=(experts, 2 * rows, columns), offset=(number, first, 0), size=(1, rows, columns))
    return "gate_up_proj", region
