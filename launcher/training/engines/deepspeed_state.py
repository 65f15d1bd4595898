"""Where each of DeepSpeed's optimizers keeps the fp32 parameters and Adam's moments, as pieces.

Read from DeepSpeed 0.19.8: ``runtime/zero/stage_1_and_2.py``, ``runtime/zero/stage3.py``,
``runtime/bf16_optimizer.py``, ``runtime/fp16/unfused_optimizer.py``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist

from launcher.training.optimizer import KINDS
from launcher.training.pieces import Piece

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.training.decoder import Decoder
    from launcher.training.pieces import Region

Regions = dict[str, "Region"]


class State(Protocol):
    """The fp32 state inside one of DeepSpeed's optimizers."""

    optimizer: torch.optim.Optimizer
    """torch's AdamW, which DeepSpeed feeds."""

    is_sharded: bool
    """Whether data-parallel ranks hold different parts."""

    def pieces(self) -> Iterator[Piece]:
        """What this rank holds."""
        ...

    def refresh(self) -> None:
        """Cast the filled pieces into the parameters the model computes with, on all ranks."""
        ...


def open_state(wrapper: Any, decoder: Decoder, regions: Regions) -> State:
    """The state inside DeepSpeed's optimizer ``wrapper``."""
    names = {parameter: name for name, parameter in decoder.named_weights()}
    if hasattr(wrapper, "fp32_partitioned_groups_flat"):
        return Partitioned(wrapper, names, regions)
    if hasattr(wrapper, "single_partition_of_fp32_groups"):
        return Flat(wrapper, wrapper.single_partition_of_fp32_groups, wrapper.bit16_groups, names, regions)
    if hasattr(wrapper, "fp32_groups_flat_partition"):
        return Flat(wrapper, wrapper.fp32_groups_flat_partition, wrapper.bf16_groups, names, regions)
    return Whole(wrapper, names, regions)


def _prepare(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> None:
    """Make Adam's state of ``parameter`` at once, so that a checkpoint has somewhere to go."""
    if not optimizer.state[parameter]:
        moments = {kind: torch.zeros_like(parameter) for kind in KINDS}
        optimizer.state[parameter] = {"step": torch.zeros((), dtype=torch.float32), **moments}


class Whole:
    """ZeRO stage 0: every rank holds everything, beside a bf16 or fp16 copy where one is used."""

    is_sharded = False

    def __init__(self, wrapper: Any, names: dict[Any, str], regions: Regions) -> None:
        self.optimizer = getattr(wrapper, "optimizer", wrapper)
        self.pairs = self._pairs(wrapper, names)
        self.regions = regions
        for _, _, master in self.pairs:
            _prepare(self.optimizer, master)

    @staticmethod
    def _pairs(wrapper: Any, names: dict[Any, str]) -> list[tuple[str, Any, Any]]:
        """Name, what the model computes with, and the fp32 master: the same tensor in fp32 training."""
        if not hasattr(wrapper, "fp32_groups"):
            return [(name, parameter, parameter) for parameter, name in names.items()]
        groups = zip(wrapper.fp16_groups, wrapper.fp32_groups, strict=True)
        return [(names[low], low, high) for lows, highs in groups for low, high in zip(lows, highs, strict=True)]

    def pieces(self) -> Iterator[Piece]:
        """See State."""
        for name, _, master in self.pairs:
            region, state = self.regions[name], self.optimizer.state[master]
            yield Piece(name=name, kind="parameter", region=region, tensor=master.data)
            for kind in KINDS:
                yield Piece(name=name, kind=kind, region=region, tensor=state[kind])

    def refresh(self) -> None:
        """See State."""
        for _, low, high in self.pairs:
            low.data.copy_(high.data)


class Flat:
    """ZeRO stages 1 and 2: a rank holds a run of each group's parameters, laid end to end."""

    is_sharded = True

    def __init__(self, wrapper: Any, flats: Any, groups: Any, names: dict[Any, str], regions: Regions) -> None:
        self.wrapper, self.optimizer = wrapper, wrapper.optimizer
        self.flats, self.groups, self.names, self.regions = flats, groups, names, regions
        for flat in flats:
            _prepare(self.optimizer, flat)

    def pieces(self) -> Iterator[Piece]:
        """See State."""
        for flat, group in zip(self.flats, self.groups, strict=True):
            for parameter in group:
                held = parameter._hp_mapping
                if held is not None:
                    yield from self._fragment(self.names[parameter], flat, held)

    def _fragment(self, name: str, flat: torch.Tensor, held: Any) -> Iterator[Piece]:
        here, there = held.hp_fragment_address, held.lp_fragment_address
        region = self.regions[name].part(there.start, there.start + there.numel)
        yield Piece(name=name, kind="parameter", region=region, tensor=flat.data.narrow(0, here.start, here.numel))
        for kind in KINDS:
            moment = self.optimizer.state[flat][kind].narrow(0, here.start, here.numel)
            yield Piece(name=name, kind=kind, region=region, tensor=moment)

    def refresh(self) -> None:
        """See State."""
        self.wrapper.update_lp_params()


class Partitioned:
    """ZeRO stage 3: a rank holds an equal run of every parameter; small ones are gathered for good."""

    is_sharded = True

    def __init__(self, wrapper: Any, names: dict[Any, str], regions: Regions) -> None:
        self.wrapper, self.optimizer, self.names, self.regions = wrapper, wrapper.optimizer, names, regions
        for flat in wrapper.fp32_partitioned_groups_flat:
            _prepare(self.optimizer, flat)

    def pieces(self) -> Iterator[Piece]:
        """See State."""
        for parameter, name in self.names.items():
            elements = math.prod(self.regions[name].size)
            group, start, length = self.wrapper.grad_position[self.wrapper.get_param_id(parameter)]
            first = dist.get_rank(group=parameter.ds_process_group) * parameter.ds_tensor.ds_numel
            last = min(first + length, elements)  # the last partition is padded
            if first >= last:
                continue
            flat = self.wrapper.fp32_partitioned_groups_flat[group]
            region = self.regions[name].part(first, last)
            held = slice(start, start + last - first)
            yield Piece(name=name, kind="parameter", region=region, tensor=flat.data[held])
            for kind in KINDS:
                yield Piece(name=name, kind=kind, region=region, tensor=self.optimizer.state[flat][kind][held])

    def refresh(self) -> None:
        """See State."""
        wrapper = self.wrapper
        pairs = zip(wrapper.fp16_partitioned_groups_flat, wrapper.fp32_partitioned_groups_flat, strict=True)
        for low, high in pairs:
            low.data.copy_(high.data)
        for number, flat in enumerate(wrapper.fp16_partitioned_groups_flat):
            held = wrapper.unflatten(flat, wrapper.fp16_partitioned_groups[number])
            for partition, values in zip(wrapper.fp16_partitioned_groups[number], held, strict=True):
                partition.data = values.data
        persistent = wrapper.persistent_parameters
        if persistent:
            persistent[0].partition(persistent)
            persistent[0].all_gather(persistent)
