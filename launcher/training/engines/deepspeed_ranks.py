"""The model-parallel unit that DeepSpeed asks for its groups, and the marks it looks for on parameters.

DeepSpeed's own cutting of a model (AutoTP) knows linear layers by name and leaves vocabulary and norms whole; the
cut of ``parallel/`` is the same for every engine, and DeepSpeed takes it as it takes Megatron's, by an ``mpu``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from launcher.training.parallel.apply import HEAD_NORMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from launcher.training.decoder import Decoder
    from launcher.training.parallel.groups import Groups
    from launcher.training.pieces import Piece


class Mpu:
    """Groups by the names DeepSpeed calls (``deepspeed/utils/groups.py``, ``utils/bwc.py``)."""

    def __init__(self, groups: Groups) -> None:
        alone = dist.new_subgroups_by_enumeration([[rank] for rank in range(dist.get_world_size())])[0]
        replicas = groups.replicas["replicate"].get_group()  # one shard a rank: all ranks with the same parameters
        self._name("data_parallel", groups.data.group or alone)
        self._name("sequence_data_parallel", replicas)
        self._name("sequence_parallel", groups.context.group or alone)
        self._name("model_parallel", groups.tensor.group or alone)
        self._name("tensor_model_parallel", groups.tensor.group or alone)

    def _name(self, axis: str, group: dist.ProcessGroup) -> None:
        values = {
            "group": group,
            "rank": dist.get_rank(group),
            "world_size": dist.get_world_size(group),
            "src_rank": dist.get_global_rank(group, 0),
        }
        for what, value in values.items():
            setattr(self, f"get_{axis}_{what}", partial(_given, value))


def _given(value: Any) -> Any:
    return value


def mark(decoder: Decoder, groups: Groups) -> None:
    """Tell DeepSpeed which parameters its norms count on this rank, and sum gradients that tensor ranks have parts of.

    DeepSpeed counts unmarked parameters on the first model-parallel rank alone. Called after the parameters have
    memory, before DeepSpeed puts hooks of its own on them.
    """
    for name, parameter in decoder.named_weights():
        region = decoder.regions[name]
        is_copy = _is_copy(decoder, name)
        is_counted = not region.is_whole or (groups.pipeline.size > 1 and groups.tensor.rank == 0)
        parameter.model_parallel = is_counted and not is_copy  # type: ignore[attr-defined]
        parameter.ds_pipe_replicated = is_copy  # type: ignore[attr-defined]
        is_partial = decoder.recipe.parallelism.sequence_parallel or name.endswith(HEAD_NORMS)
        if region.is_whole and is_partial and groups.tensor.group is not None:
            parameter.register_hook(partial(_summed, group=groups.tensor.group))


def global_norm(decoder: Decoder, groups: Groups) -> float:
    """L2 norm of the gradient over the whole model, where data-parallel ranks have the same."""
    total = torch.zeros((), dtype=torch.float64, device=next(decoder.parameters()).device)
    for name, parameter in decoder.named_weights():
        if parameter.grad is not None and not _is_copy(decoder, name):
            copies = groups.tensor.size if decoder.regions[name].is_whole else 1
            total += parameter.grad.double().square().sum() / copies
    for axis in (groups.tensor, groups.pipeline):
        if axis.group is not None:
            dist.all_reduce(total, group=axis.group)
    return float(total.sqrt())


def written_once(pieces: Iterable[Piece], decoder: Decoder, groups: Groups, *, is_sharded: bool) -> Iterator[Piece]:
    """``pieces`` with a writer for each: ranks that hold the same take turns, a tied copy is written elsewhere.

    ``is_sharded``: data-parallel ranks hold different parts.
    """
    replicas = groups.replicas["replicate"]
    turns = {name: number for number, name in enumerate(decoder.regions)}
    for piece in pieces:
        turn = turns[piece.name]
        is_own = is_sharded or turn % replicas.size() == replicas.get_local_rank()
        is_part = not piece.region.is_whole or turn % groups.tensor.size == groups.tensor.rank
        yield replace(piece, is_written=is_own and is_part and not _is_copy(decoder, piece.name))


def _is_copy(decoder: Decoder, name: str) -> bool:
    return decoder.has_tied_copy and name == decoder.embedding_name


def _summed(gradient: torch.Tensor, *, group: dist.ProcessGroup) -> torch.Tensor:
    total = gradient.contiguous().clone()
    dist.all_reduce(total, group=group)
    return total
