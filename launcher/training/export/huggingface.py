"""A folder that ``AutoModelForCausalLM.from_pretrained`` loads, from a checkpoint of any layout.

Weights are read and written one tensor at a time, under the names and in the files that transformers writes.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from launcher.training.checkpoint.storage import write_text, write_whole
from launcher.training.errors import CheckpointError
from launcher.training.families import FAMILIES, make_configuration, make_model
from launcher.training.huggingface import expert_region
from launcher.training.pieces import Piece, whole
from launcher.training.safetensors_file import Waiting, chunks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from launcher.recipe.schema import Model
    from launcher.training.pieces import Region
    from launcher.training.weights import Weights

FILE_BYTES = 5_000_000_000
"""Largest weight file, as transformers writes them."""
LEAST_SHARE = 0.95
"""An export smaller than this share of parameters x bytes holds placeholders, not weights."""


def export_huggingface(
    weights: Weights, model: Model, folder: Path, *, dtype: str = "bfloat16", tokenizer: Path | None = None
) -> int:
    """Write ``weights`` as transformers would save them.

    Args:
        weights: Of a checkpoint of any layout.
        model: The model section of its recipe.
        folder: Where to; made if needed.
        dtype: Of the written weights, by torch's name.
        tokenizer: Folder of the run's tokenizer, which goes along.

    Returns:
        Bytes of weights written.

    Raises:
        CheckpointError: the weights do not fit the model, or less was written than the model has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = dict(_leaving(weights, model, getattr(torch, dtype)))
    written = _write_files(folder, tensors)
    expected = LEAST_SHARE * sum(tensor.bytes for tensor in tensors.values())
    if written < expected:
        raise CheckpointError(f"{written} bytes of weights were written to {folder}, at least {expected:.0f} expected")
    if tokenizer:
        shutil.copytree(tokenizer, folder, dirs_exist_ok=True)
    _configuration(model, dtype, tokenizer).save_pretrained(folder)
    return written


def load_model(weights: Weights, model: Model, **configured: Any) -> Any:
    """A transformers model with ``weights``, whole and in fp32, ready to generate; ``configured`` as it says."""
    configuration = make_configuration(model, attn_implementation="sdpa", use_cache=True, **configured)
    loaded = make_model(configuration, model)
    weights.fill(
        Piece(name=name, kind="parameter", region=whole(tuple(parameter.shape)), tensor=parameter.data)
        for name, parameter in loaded.named_parameters()
    )
    return loaded.eval()


def _configuration(model: Model, dtype: str, tokenizer: Path | None) -> Any:
    """The model's ``config.json``: for generating, with the tokens at which text begins and ends."""
    tokens: dict[str, int | None] = {}
    if tokenizer:
        from transformers import AutoTokenizer

        read = AutoTokenizer.from_pretrained(tokenizer, local_files_only=True)
        tokens = {name: getattr(read, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    configuration = make_configuration(model, dtype=dtype, use_cache=True, **tokens)
    configuration.architectures = [FAMILIES[model.model_type].model]
    return configuration


def _leaving(weights: Weights, model: Model, dtype: torch.dtype) -> Iterator[tuple[str, Waiting]]:
    """Every tensor of the Hub's form by name, to be read when it is written."""
    with torch.device("meta"):
        parameters = dict(make_model(make_configuration(model), model).named_parameters())
    for name, parameter in parameters.items():
        for written, region, shape in _hub_parts(name, tuple(parameter.shape)):
            values = partial(_assembled, weights, name, region)
            yield written, Waiting(dtype=dtype, shape=shape, values=values)


def _hub_parts(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, Region, tuple[int, ...]]]:
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
            _, region = expert_region(part, number, matrix, experts)
            yield f"{layer}.block_sparse_moe.experts.{number}.{part}.weight", region, matrix


def _assembled(weights: Weights, name: str, region: Region) -> torch.Tensor:
    values = torch.empty(region.size, dtype=torch.float32)
    weights.fill([Piece(name=name, kind="parameter", region=region, tensor=values)])
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
