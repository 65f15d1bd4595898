"""``launcher generate``: a look at what a run has learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher.cli.handles import open_trained, trained_options
from launcher.cli.invocation import Verb

if TYPE_CHECKING:
    from launcher.cli.invocation import Invocation


@click.command(cls=Verb)
@trained_options
@click.argument("prompt")
@click.option("--tokens", type=click.IntRange(min=1), default=100, show_default=True, help="Most tokens to add.")
@click.option(
    "--temperature", type=click.FloatRange(min=0), default=0.8, show_default=True, help="0 takes the likeliest token."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the choice among tokens.")
@click.pass_obj
def command(
    invocation: Invocation,
    handle: str,
    base: str | None,
    prompt: str,
    tokens: int,
    temperature: float,
    seed: int,
) -> None:
    """Write what a run's newest checkpoint makes of PROMPT.

    launcher generate latest "Once upon a time"
    launcher generate latest "The capital of France is" --temperature 0 --tokens 5
    """
    from launcher.training.generate import generate

    trained = open_trained(invocation, handle, base=base)
    text = generate(trained.opened, prompt, tokens=tokens, temperature=temperature, seed=seed)
    document = {"handle": trained.handle, "step": trained.opened.step, "prompt": prompt, "text": text}
    invocation.answer(document, lambda: text)
