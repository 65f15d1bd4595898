"""Cutting a decoder on the meta device: the layers of a stage, and this rank's part of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from launcher.training.decoder import TiedHead
from launcher.training.parallel.experts import MixtureBlock
from launcher.training.parallel.tensor import (
    Columns,
    FusedColumns,
    Rows,
    Tensor,
    TransposedColumns,
    VocabularyRows,
)

if TYPE_CHECKING:
    from torch import nn

    from launcher.training.decoder import Decoder
    from launcher.training.parallel.groups import Groups

_LLAMA = (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "self_attn.o_proj")
_GATED = (("mlp.gate_proj", "mlp.up_proj"), "mlp.down_proj")
BLOCKS: dict[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "gpt2": ((("attn.c_attn",), "attn.c_proj"), (("mlp.c_fc",), "mlp.c_proj")),
    "gpt_neox": (
        (("attention.query_key_value",), "attention.dense"),
        (("mlp.dense_h_to_4h",), "mlp.dense_4h_to_h"),
    ),
    "llama": (_LLAMA, _GATED),
    "mistral": (_LLAMA, _GATED),
    "qwen3": (_LLAMA, _GATED),
    "mixtral": (_LLAMA,),
}
"""For each block of a layer: the linear layers divided by outputs, and the one divided by inputs that ends it."""

HEAD_NORMS = ("q_norm.weight", "k_norm.weight")
"""Norms inside attention: one weight, used by every tensor rank for its own heads."""


def divide(decoder: Decoder, groups: Groups, *, is_sequence_parallel: bool) -> None:
    """Cut ``decoder`` (on the meta device) for this rank's place among tensor and expert ranks."""
    tensor = Tensor(axis=groups.tensor, is_sequence_parallel=is_sequence_parallel and groups.tensor.size > 1)
    kind = decoder.recipe.model.model_type
    if groups.tensor.size > 1:
        decoder.tensor = tensor
        for layer in decoder.layers:
            for columns, rows in BLOCKS[kind]:
                _divide_block(layer, columns, rows, tensor)
        _divide_vocabulary(decoder, tensor)
    if decoder.is_tied_here:
        decoder.model.set_output_embeddings(TiedHead(decoder.embedding))
    if kind == "mixtral" and max(groups.tensor.size, groups.expert.size) > 1:
        for layer in decoder.layers:
            layer.mlp = MixtureBlock(layer.mlp, tensor, groups.expert)
    decoder.collect_regions()


def _divide_block(layer: nn.Module, columns: tuple[str, ...], rows: str, tensor: Tensor) -> None:
    for path in columns:
        linear = layer.get_submodule(path)
        _replace(layer, path, _column_kind(path)(linear, tensor.axis))
    linear = layer.get_submodule(rows)
    _replace(layer, rows, Rows(linear, tensor, is_transposed=rows.endswith("c_proj")))
    block: Any = layer.get_submodule(rows.rpartition(".")[0])
    block.register_forward_pre_hook(lambda _, inputs, named: _entered(tensor, inputs, named), with_kwargs=True)
    if rows == "attn.c_proj":
        block.split_size = block.split_size // tensor.axis.size


def _column_kind(path: str) -> Any:
    return {"attn.c_attn": FusedColumns, "mlp.c_fc": TransposedColumns}.get(path, Columns)


def _entered(tensor: Tensor, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A block's arguments with its hidden states, first or by name, entered among the tensor ranks."""
    if inputs:
        return (tensor.enter(inputs[0]), *inputs[1:]), named
    return inputs, {**named, "hidden_states": tensor.enter(named["hidden_states"])}


def _divide_vocabulary(decoder: Decoder, tensor: Tensor) -> None:
    """Embedding and head hold the same rows of the vocabulary."""
    if decoder.embedding is not None:
        setattr(decoder.trunk, decoder.family.embedding, VocabularyRows(decoder.embedding, tensor))
    if decoder.head is not None and not decoder.is_tied_here:
        decoder.model.set_output_embeddings(Columns(decoder.head, tensor.axis))


def _replace(root: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(root.get_submodule(parent), name, module)
