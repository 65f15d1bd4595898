"""A transformers decoder, or a stage of one, as embedding, layers and head, from tokens to loss.

Every engine runs this one forward pass over transformers' own blocks: what differs between layouts is what each rank
holds, not what is computed. Shapes: B sequences, S tokens, H hidden, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from launcher.training.attention import register, visible_keys
from launcher.training.families import FAMILIES, make_configuration, make_model
from launcher.training.lora import adapt, plain_name
from launcher.training.parallel.collectives import sum_out
from launcher.training.parallel.cross_entropy import summed_cross_entropy
from launcher.training.parallel.tensor import span
from launcher.training.pieces import whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from launcher.recipe.schema import Recipe
    from launcher.training.batches import MicroBatch
    from launcher.training.parallel.context import Style
    from launcher.training.parallel.groups import Axis
    from launcher.training.parallel.tensor import Tensor
    from launcher.training.pieces import Region


class Losses(NamedTuple):
    """What one forward pass costs, per token."""

    objective: torch.Tensor
    """What is minimised: cross-entropy plus the experts' load-balancing loss."""
    cross_entropy: torch.Tensor
    """Nats per token, detached."""


class Decoder(nn.Module):
    """A causal language model that returns its loss; or some of its layers, between embedding and head."""

    def __init__(self, model: Any, recipe: Recipe, *, context: Axis | None = None) -> None:
        super().__init__()
        self.model, self.recipe, self.context = model, recipe, context
        self.family = FAMILIES[recipe.model.model_type]
        self.tensor: Tensor | None = None
        self.regions: dict[str, Region] = {}
        self._expert_loads: list[torch.Tensor] = []
        self.collect_regions()
        if recipe.model.num_local_experts:
            for layer in self.layers:
                layer.mlp.gate.register_forward_hook(_keep_logits)

    @property
    def trunk(self) -> Any:
        """Everything but the head."""
        return getattr(self.model, self.family.trunk)

    @property
    def layers(self) -> list[Any]:
        """The decoder layers that are here, in order."""
        held = getattr(self.trunk, self.family.layers)
        return list(held.values() if isinstance(held, nn.ModuleDict) else held)

    @property
    def embedding(self) -> Any:
        """The token embedding; None in a later stage."""
        return getattr(self.trunk, self.family.embedding)

    @property
    def head(self) -> Any:
        """From hidden states to logits; None in an earlier stage."""
        return self.model.get_output_embeddings()

    @property
    def is_tied_here(self) -> bool:
        """Whether embedding and head are both here and share their weights."""
        return self.recipe.model.tie_word_embeddings and self.embedding is not None and self.head is not None

    @property
    def has_tied_copy(self) -> bool:
        """Whether the head is a copy of an embedding that another stage has."""
        return self.recipe.model.tie_word_embeddings and self.embedding is None and self.head is not None

    @property
    def embedding_name(self) -> str:
        """Name of the embedding's weights in the transformers model."""
        return f"{self.family.trunk}.{self.family.embedding}.weight"

    def named_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters by their names in the transformers model; tied ones once, under the embedding's name."""
        for name, parameter in self.model.named_parameters():
            is_copy = self.has_tied_copy and parameter is self.head.weight
            yield self.embedding_name if is_copy else plain_name(name), parameter

    def keep(self, layers: Sequence[int], *, is_first: bool, is_last: bool) -> None:
        """Become a stage: forget all layers but these, and what only the first or the last stage needs."""
        trunk, family = self.trunk, self.family
        held = getattr(trunk, family.layers)
        setattr(trunk, family.layers, nn.ModuleDict({str(number): held[number] for number in layers}))
        if not is_first:
            setattr(trunk, family.embedding, None)
            if family.positions:
                setattr(trunk, family.positions, None)
        if not is_last:
            setattr(trunk, family.norm, None)
            self.model.set_output_embeddings(None)
        self.collect_regions()

    def collect_regions(self) -> None:
        """Remember which block of each whole parameter is here, before an engine shards it further."""
        special = {
            f"{path}.{name}" if path else name: region
            for path, module in self.model.named_modules()
            for name, region in getattr(module, "regions", {}).items()
        }
        local = {id(parameter): name for name, parameter in self.model.named_parameters()}
        self.regions = {
            name: special.get(local[id(parameter)], whole(tuple(parameter.shape)))
            for name, parameter in self.named_weights()
        }

    def forward(self, batch: MicroBatch) -> Losses:
        """The loss of predicting each label of ``batch``, for a decoder that is whole."""
        hidden, balance = self.run_layers(self.embed(batch), batch)
        return self.losses(hidden, balance, batch)

    def embed(self, batch: MicroBatch) -> torch.Tensor:
        """Token (and learned position) embeddings [B, S, H], or this tensor rank's part of the sequence."""
        hidden: torch.Tensor = self.embedding(batch.inputs)
        if self.family.positions:
            positions = batch.positions
            if self.tensor and self.tensor.is_sequence_parallel:
                positions = positions.chunk(self.tensor.axis.size, 1)[self.tensor.axis.rank]
            hidden = hidden + getattr(self.trunk, self.family.positions)(positions)
        if self.family.dropout:
            hidden = getattr(self.trunk, self.family.dropout)(hidden)
        return hidden

    def run_layers(self, hidden: torch.Tensor, batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """The layers that are here, and their weighted load-balancing loss (zero without experts)."""
        given: dict[str, Any] = {"attention_mask": visible_keys(batch), "position_ids": batch.positions}
        if self.family.rotary:
            given["position_embeddings"] = getattr(self.trunk, self.family.rotary)(hidden, batch.positions)
        balance = hidden.new_zeros((), dtype=torch.float32)
        for layer in self.layers:
            hidden, added = self._run_layer(layer, hidden, given)
            balance = balance + added
        return hidden, balance

    def losses(self, hidden: torch.Tensor, balance: torch.Tensor, batch: MicroBatch) -> Losses:
        """Cross-entropy of the head's prediction of the labels, summed and divided by ``batch.targets``."""
        hidden = getattr(self.trunk, self.family.norm)(hidden)
        if self.tensor:
            hidden = self.tensor.enter(hidden)
        axis = self.tensor.axis if self.tensor else None
        vocabulary = self.recipe.model.vocab_size
        rows = span(vocabulary, axis) if axis else (0, vocabulary)
        total = summed_cross_entropy(self.head, hidden.flatten(0, 1), batch.labels.flatten(), rows=rows, axis=axis)
        cross_entropy = total / batch.targets
        return Losses(cross_entropy + balance, cross_entropy.detach())

    def _run_layer(self, layer: nn.Module, hidden: torch.Tensor, given: Any) -> Any:
        if self.recipe.training.activation_checkpointing == "full" and self.training:
            return checkpoint(self._layer, layer, hidden, given, use_reentrant=False)
        return self._layer(layer, hidden, given)

    def _layer(self, layer: nn.Module, hidden: torch.Tensor, given: Any) -> tuple[torch.Tensor, torch.Tensor | float]:
        return layer(hidden, **given), self._balance(layer)

    def _balance(self, layer: Any) -> torch.Tensor | float:
        """One layer's share of the load-balancing loss (Fedus et al., arXiv:2101.03961, equations 4 to 6)."""
        shape = self.recipe.model
        if not shape.num_local_experts:
            return 0.0
        probabilities = layer.mlp.gate.logits.float().softmax(-1)
        chosen = probabilities.topk(shape.num_experts_per_tok).indices
        counts = nn.functional.one_hot(chosen, shape.num_local_experts).sum(1).float()
        share, weight = (self._mean_over_tokens(values) for values in (counts, probabilities))
        self._expert_loads.append(share.detach().max() * (shape.num_local_experts / shape.num_experts_per_tok))
        return shape.num_local_experts * (share * weight).sum() * shape.router_aux_loss_coef / shape.num_hidden_layers

    def take_expert_load(self) -> float:
        """Tokens of the busiest expert over an even share, at most since the last call; 0 without experts.

        The capacity factor with which no expert would have to drop a token (GShard, arXiv:2006.16668, section 2.2).
        """
        loads, self._expert_loads = self._expert_loads, []
        return float(torch.stack(loads).max()) if loads else 0.0

    def _mean_over_tokens(self, values: torch.Tensor) -> torch.Tensor:
        """Mean over the tokens of whole sequences, also where ranks share them."""
        mean = values.mean(0)
        if self.context:
            mean = sum_out(mean, self.context) / self.context.size
        if self.tensor and self.tensor.is_sequence_parallel:
            mean = sum_out(mean, self.tensor.axis) / self.tensor.axis.size
        return mean


class TiedHead(nn.Module):
    """The head of a tied model as a reader of the embedding's weights, for engines that own every parameter once."""

    def __init__(self, embedding: nn.Module) -> None:
        super().__init__()
        self._embedding = (embedding,)  # in a tuple, so that it is not registered a second time

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, H] in, logits out."""
        return nn.functional.linear(hidden, cast("torch.Tensor", self._embedding[0].weight))


def _keep_logits(gate: Any, _: Any, outputs: tuple[torch.Tensor, ...]) -> None:
    gate.logits = outputs[0]


def build_on_meta(recipe: Recipe, *, context: Axis | None = None) -> Decoder:
    """The model's structure, without a byte of weights."""
    with torch.device("meta"):
        return build_in_place(recipe, context=context)


def build_in_place(recipe: Recipe, *, context: Axis | None = None) -> Decoder:
    """The model, its weights drawn by transformers or by whoever's context this is called in.

    ``context``: ranks that share each sequence, for attention to reach over.
    """
    style: Style = "ulysses" if recipe.parallelism.engine == "deepspeed" else "gathered"
    attention = register(recipe.training, context=context, style=style)
    model = make_model(make_configuration(recipe.model, attn_implementation=attention), recipe.model)
    if recipe.training.lora.rank:
        adapt(model, recipe)
    return Decoder(model, recipe, context=context)


def speed_up(decoder: Decoder, device: torch.device) -> None:
    """Fp8 products and fused layers, where the recipe asks; layers are alike, so the first is compiled for all."""
    if decoder.recipe.training.precision == "fp8":
        from launcher.training.float8 import use_float8

        use_float8(decoder, device)
    if decoder.recipe.training.compile:
        for layer in decoder.layers:
            layer.compile()


def rebuild(decoder: Decoder, device: torch.device) -> None:
    """Tie what ``to_empty`` untied, and compute again the rotary frequencies, which no checkpoint holds."""
    if decoder.is_tied_here and not isinstance(decoder.head, TiedHead):
        decoder.head.weight = decoder.embedding.weight
    if decoder.family.rotary:
        rotary = type(getattr(decoder.trunk, decoder.family.rotary))
        setattr(decoder.trunk, decoder.family.rotary, rotary(config=decoder.model.config).to(device))
