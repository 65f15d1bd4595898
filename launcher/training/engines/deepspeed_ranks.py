"""The model-parallel unit that DeepSpeed asks for its groups, and the marks it looks for on parameters.

DeepSpeed's own cutting of a model (AutoTP) knows linear layers by name and leaves vocabulary and norms whole; the
cut of ``parallel/`` is the same for every engine, and DeepSpeed takes it as it takes Megatron's, by an ``mpu``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from launcher.training.parallel.apply import HEAD_NORMS

if TYPE_CHECKING:
    from launcher.training.decoder import Decoder
    from launcher.training.parallel.groups import Axis, Groups


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


def mark(decoder: Decoder, tensor: Axis) -> None:
    """Tell DeepSpeed which parameters are parts, and sum gradients of which tensor ranks have parts.

    Called after the parameters have memory, before DeepSpeed puts hooks of its own on them.
    """
    if tensor.group is None:
        return
    for name, parameter in decoder.named_weights():
        if not decoder.regions[name].is_whole:
            parameter.model_parallel = parameter.tensor_model_parallel = True  # type: ignore[attr-defined]
        elif decoder.recipe.parallelism.sequence_parallel or name.endswith(HEAD_NORMS):
            parameter.register_hook(partial(_summed, group=tensor.group))


def _summed(gradient: torch.Tensor, *, group: dist.ProcessGroup) -> torch.Tensor:
    total = gradient.contiguous().clone()
    dist.all_reduce(total, group=group)
    return total
