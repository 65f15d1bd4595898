"""Expert parallelism: each rank holds some experts of every layer, and tokens travel to them and back.

No token is dropped and none is padded: ranks first tell each other how many they send. Under tensor parallelism each
expert is divided by feed-forward columns as a dense layer is. Shapes: T tokens, K experts a token, E experts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from launcher.training.parallel.collectives import copy_in, exchange, gather_in
from launcher.training.parallel.tensor import SEQUENCE, span
from launcher.training.pieces import Region

if TYPE_CHECKING:
    from launcher.training.parallel.groups import Axis
    from launcher.training.parallel.tensor import Tensor


class SharedExperts(nn.Module):
    """Some experts (over ``expert``), and of each some columns (over ``tensor``)."""

    gate_up_proj: nn.Parameter
    down_proj: nn.Parameter

    def __init__(self, experts: Any, tensor: Axis, expert: Axis) -> None:
        super().__init__()
        count, doubled, hidden = experts.gate_up_proj.shape
        self.expert, self.act_fn = expert, experts.act_fn
        first, self.count = span(count, expert)
        column, width = span(doubled // 2, tensor)
        # Gate and up projection lie one after the other in [E, 2I, H]; as [E, 2, I, H] both are divided alike.
        self.regions = {
            "gate_up_proj": Region(
                shape=(count, 2, doubled // 2, hidden),
                offset=(first, 0, column, 0),
                size=(self.count, 2, width, hidden),
            ),
            "down_proj": Region(
                shape=(count, hidden, doubled // 2), offset=(first, 0, column), size=(self.count, hidden, width)
            ),
        }
        for name, region in self.regions.items():
            setattr(self, name, nn.Parameter(torch.empty(region.size, device="meta")))

    def forward(self, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Weighted sum over each token's experts: [T, H], [T, K], [T, K] in, [T, H] out."""
        per_token = chosen.shape[1]
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=self.count * self.expert.size)
        rows = hidden[order // per_token]
        computed = self._by_owner(rows, counts)
        weighted = computed * weights.flatten()[order, None].to(computed.dtype)
        return torch.zeros_like(hidden).index_add(0, order // per_token, weighted.to(hidden.dtype))

    def _by_owner(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Rows sorted by expert, each through its expert wherever that is, back in the same order."""
        if self.expert.group is None:
            return self._compute(rows, counts.tolist())
        there = torch.empty_like(counts)
        dist.all_to_all_single(there, counts, group=self.expert.group)
        sent = counts.view(self.expert.size, -1).sum(1).tolist()
        arriving = there.view(self.expert.size, -1)
        received = arriving.sum(1).tolist()
        arrived = exchange(rows, self.expert, sent=sent, received=received)
        # Rows came sorted by sender, then expert; each expert wants its rows together.
        kinds = torch.arange(self.count, device=rows.device).repeat(self.expert.size)
        by_expert = kinds.repeat_interleave(arriving.flatten()).argsort(stable=True)
        computed = self._compute(arrived[by_expert], arriving.sum(0).tolist())
        back = torch.empty_like(by_expert)
        back[by_expert] = torch.arange(len(by_expert), device=rows.device)
        return exchange(computed[back], self.expert, sent=received, received=sent)

    def _compute(self, rows: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """Rows sorted by this rank's experts, each through its own; experts without rows take part all the same."""
        gate_up = self.gate_up_proj.flatten(1, 2)
        outputs = []
        for number, part in enumerate(rows.split(counts)):
            gate, up = functional.linear(part, gate_up[number]).chunk(2, -1)
            outputs.append(functional.linear(self.act_fn(gate) * up, self.down_proj[number]))
        return torch.cat(outputs)


class MixtureBlock(nn.Module):
    """Router and experts in the place of transformers' block, with the same parameter names."""

    def __init__(self, block: Any, tensor: Tensor, expert: Axis) -> None:
        super().__init__()
        self.gate, self.tensor = block.gate, tensor
        self.experts = SharedExperts(block.experts, tensor.axis, expert)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, S, H], or this rank's part of the sequence, in and out.

        The router works on what the rank has; what it decided travels with the tokens. The gradient of its weights
        is partial on each tensor rank, as that of the tokens is, and is summed on the same way back.
        """
        shape = hidden.shape
        _, weights, chosen = self.gate(hidden)
        hidden = self.tensor.enter(hidden)
        weights, chosen = (values.view(*shape[:2], -1) for values in (weights, chosen))
        if self.tensor.is_sequence_parallel:
            weights = gather_in(weights, self.tensor.axis, dim=SEQUENCE)
            chosen = gather_in(chosen, self.tensor.axis, dim=SEQUENCE)
        else:
            weights = copy_in(weights, self.tensor.axis)
        flat = self.experts(hidden.flatten(0, 1), chosen.flatten(0, 1), weights.flatten(0, 1))
        return self.tensor.leave(flat.view_as(hidden))
