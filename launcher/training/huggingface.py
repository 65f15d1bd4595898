"""Hugging Face folders: starting from one, and leaving as one.

Weights are read and written element by element through the same regions as our own checkpoints, so each rank reads
just what it holds, from any layout into any layout. Names are those of transformers' models; where the files on the
Hub differ (experts one by one, GPT-2 without its prefix, GPT-NeoX's old head), both spellings are read and the Hub's is
written.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from launcher.training.checkpoint.restore import fill, open_shelf
from launcher.training.checkpoint.shard import Entry
from launcher.training.checkpoint.storage import write_text, write_whole
from launcher.training.errors import CheckpointError
from launcher.training.families import FAMILIES, configuration_values, make_configuration, make_model
from launcher.training.pieces import Piece, Region, whole
from launcher.training.safetensors_file import Waiting, chunks, read_header

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from launcher.recipe.schema import Model
    from launcher.training.checkpoint.manifest import Manifest
    from launcher.training.checkpoint.restore import Shelf
    from launcher.training.safetensors_file import Stored

FILE_BYTES = 5_000_000_000
"""Largest weight file, as transformers writes them."""
LEAST_SHARE = 0.95
"""An export smaller than this share of parameters x bytes holds placeholders, not weights."""
_EXPERT = re.compile(r"(model\.layers\.\d+)\.block_sparse_moe\.experts\.(\d+)\.(w[123])\.weight")
_IGNORED = re.compile(r".*(\.attn\.(bias|masked_bias)|\.attention\.(bias|masked_bias)|\.rotary_emb\.inv_freq)")
"""Buffers that old versions of transformers wrote beside the weights."""
_NOT_COMPARED = frozenset({
    "use_cache", "bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "tie_word_embeddings",
    "resid_pdrop", "embd_pdrop", "attn_pdrop", "hidden_dropout", "attention_dropout", "max_position_embeddings",
    "router_aux_loss_coef", "rope_parameters", "n_inner",
})  # fmt: skip
"""What a fine-tune may set otherwise, or what the shapes of the weights already say."""


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
    return shelf


def export_huggingface(
    checkpoint: Path, manifest: Manifest, model: Model, folder: Path, *, dtype: torch.dtype = torch.bfloat16
) -> int:
    """Write a checkpoint of any layout as a folder that ``AutoModelForCausalLM.from_pretrained`` loads.

    Args:
        checkpoint: The checkpoint's folder.
        manifest: Of the checkpoint.
        model: The model section of its recipe.
        folder: Where to; made if needed.
        dtype: Of the written weights.

    Returns:
        Bytes of weights written.

    Raises:
        CheckpointError: the checkpoint does not fit the model, or less was written than the model has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shelf = open_shelf(checkpoint / file.name for file in manifest.files)
    tensors = dict(_leaving(shelf, model, dtype))
    written = _write_files(folder, tensors)
    expected = LEAST_SHARE * sum(tensor.bytes for tensor in tensors.values())
    if written < expected:
        raise CheckpointError(f"{written} bytes of weights were written to {folder}, at least {expected:.0f} expected")
    configuration = make_configuration(model, dtype=str(dtype).removeprefix("torch."))
    configuration.architectures = [FAMILIES[model.model_type].model]
    configuration.save_pretrained(folder)
    tokenizer = checkpoint.parent / TOKENIZER
    if tokenizer.is_dir():
        shutil.copytree(tokenizer, folder, dirs_exist_ok=True)
    return written


TOKENIZER = "tokenizer"
"""Folder beside the checkpoints that holds the tokenizer of the run, as transformers saves one."""


def load_model(shelf: Shelf, model: Model) -> Any:
    """A transformers model with the weights of ``shelf``, whole and in fp32, ready to generate."""
    configuration = make_configuration(model, attn_implementation="sdpa", use_cache=True)
    loaded = make_model(configuration, model)
    pieces = [
        Piece(name=name, kind="parameter", region=whole(tuple(parameter.shape)), tensor=parameter.data)
        for name, parameter in loaded.named_parameters()
    ]
    fill(pieces, shelf)
    return loaded.eval()


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
    return [
        f"{key} is {getattr(theirs, key)}, the recipe's {value}"
        for key, value in ours.items()
        if value is not None and getattr(theirs, key, value) not in (value, None)
    ]


def _entry(name: str, stored: Stored, model: Model) -> Entry:
    """A tensor of the Hub's files as a piece of a parameter of transformers' model."""
    expert = _EXPERT.fullmatch(name)
    if expert:
        layer, number, part = expert.groups()
        parameter, region = _expert_region(part, int(number), stored.shape, model.num_local_experts)
        return Entry(stored=stored, name=f"{layer}.mlp.experts.{parameter}", kind="parameter", region=region)
    return Entry(stored=stored, name=_our_name(name, model), kind="parameter", region=whole(stored.shape))


def _our_name(name: str, model: Model) -> str:
    """The name transformers' model uses for a tensor of the Hub's files."""
    trunk = FAMILIES[model.model_type].trunk
    name = name.replace(".block_sparse_moe.gate.", ".mlp.gate.")
    if name in ("lm_head.weight", "embed_out.weight"):
        return "lm_head.weight"
    return name if name.startswith(f"{trunk}.") else f"{trunk}.{name}"


def _expert_region(part: str, number: int, shape: tuple[int, ...], experts: int) -> tuple[str, Region]:
    """Where one expert's matrix lies in the stacked one: gate (w1) above up (w3), down (w2) alone."""
    if part == "w2":
        return "down_proj", Region(shape=(experts, *shape), offset=(number, 0, 0), size=(1, *shape))
    rows, columns = shape
    first = 0 if part == "w1" else rows
    region = Region(shape=(experts, 2 * rows, columns), offset=(number, first, 0), size=(1, rows, columns))
    return "gate_up_proj", region


def _leaving(shelf: Shelf, model: Model, dtype: torch.dtype) -> Iterator[tuple[str, Waiting]]:
    """Every tensor of the Hub's form by name, to be filled from ``shelf`` when it is written."""
    with torch.device("meta"):
        parameters = dict(make_model(make_configuration(model), model).named_parameters())
    for name, parameter in parameters.items():
        for written, region, shape in _hub_parts(name, tuple(parameter.shape), model):
            values = partial(_assembled, shelf, name, region)
            yield written, Waiting(dtype=dtype, shape=shape, values=values)


def _hub_parts(name: str, shape: tuple[int, ...], model: Model) -> Iterator[tuple[str, Region, tuple[int, ...]]]:
    """Names, regions and shapes under which the Hub has a parameter: itself, or its experts one by one."""
    layer, is_experts, parameter = name.partition(".mlp.experts.")
    if not is_experts:
        yield name.replace(".mlp.gate.", ".block_sparse_moe.gate."), whole(shape), shape
        return
    experts, rows, columns = shape
    parts = ("w2",) if parameter == "down_proj" else ("w1", "w3")
    matrix = (rows // len(parts), columns)
    for number in range(experts):
        for part in parts:
            _, region = _expert_region(part, number, matrix, experts)
            yield f"{layer}.block_sparse_moe.experts.{number}.{part}.weight", region, matrix


def _assembled(shelf: Shelf, name: str, region: Region) -> torch.Tensor:
    values = torch.empty(region.size, dtype=torch.float32)
    fill([Piece(name=name, kind="parameter", region=region, tensor=values)], shelf)
    return values


def _write_files(folder: Path, tensors: dict[str, Waiting]) -> int:
    """One file, or several and an index, as ``save_pretrained`` names them; returns the bytes of weights."""
    groups: list[dict[str, Waiting]] = [{}]
    for name, tensor in tensors.items():
        if groups[-1] and sum(held.bytes for held in groups[-1].values()) + tensor.bytes > FILE_BYTES:
            groups.append({})
        groups[-1][name] = tensor
    count, total = len(groups), sum(tensor.bytes for tensor in tensors.values())
    weight_map: dict[str, str] = {}
    written = 0
    for number, group in enumerate(groups, start=1):
        file = "model.safetensors" if count == 1 else f"model-{number:05d}-of-{count:05d}.safetensors"
        written += write_whole(folder / file, partial(chunks, group, {"format": "pt"})).bytes
        weight_map |= dict.fromkeys(group, file)
    if count > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        write_text(folder / "model.safetensors.index.json", json.dumps(index, indent=2) + "\n")
    return written
