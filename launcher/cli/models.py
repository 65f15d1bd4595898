"""``launcher models``: checkpoints of runs as versioned models."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from launcher.cli import terminal
from launcher.cli.handles import handle_argument, resolve_handle
from launcher.cli.invocation import Invocation, Verb, VerbGroup
from launcher.errors import UsageError

if TYPE_CHECKING:
    from launcher.backends.azureml.models import RegisteredModel


@click.group(cls=VerbGroup)
def command() -> None:
    """Register checkpoints as models of the workspace, and list them."""


@command.command(cls=Verb)
@handle_argument(required=True)
@click.option("--name", help="Of the model; the recipe's name when not given.")
@click.option("--step", type=click.IntRange(min=0), help="Of the checkpoint; the newest when not given.")
@click.pass_obj
def register(invocation: Invocation, handle: str, name: str | None, step: int | None) -> None:
    """Register a checkpoint of a run as the next version of a model, with its recipe, plan, step and losses.

    launcher models register latest --name gpt-tiny
    """
    from launcher.backends import parse_handle
    from launcher.backends.azureml.backend import AzureMLBackend

    handle = resolve_handle(invocation, handle)
    backend, run = parse_handle(handle)
    if backend == "local":
        raise UsageError(f"{handle} is on this machine; models belong to a workspace", allowed="azureml:NAME")
    stem = run.rpartition("-")[0].rpartition("-")[0]
    model = AzureMLBackend().register_model(handle, name or stem or run, step=step)
    invocation.answer(asdict(model), lambda: f"registered  {model.name}:{model.version}    {model.path}")


@command.command("list", cls=Verb)
@click.argument("name", required=False)
@click.pass_obj
def list_(invocation: Invocation, name: str | None) -> None:
    """List the workspace's models, or the versions of one.

    launcher models list gpt-tiny
    """
    from launcher.backends.azureml.backend import AzureMLBackend
    from launcher.backends.azureml.models import models

    found = list(models(AzureMLBackend().client(), name))
    header = ("model", "version", "recipe", "step", "loss", "run")
    invocation.answer(
        {"models": [asdict(model) for model in found]},
        lambda: "\n".join(terminal.titled_table(header, map(_row, found)) if found else ["the workspace has none"]),
    )


def _row(model: RegisteredModel) -> tuple[str, ...]:
    tags = model.tags
    return (model.name, model.version, *(tags.get(tag, "") for tag in ("recipe", "step", "loss", "run")))
