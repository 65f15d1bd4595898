"""``launcher export``: a run's weights for everybody else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from launcher.cli.handles import open_trained, trained_options
from launcher.cli.invocation import Invocation, Verb
from launcher.errors import UsageError
from launcher.units import format_bytes

if TYPE_CHECKING:
    from launcher.training.weights import Checkpoint

FORMATS = ("huggingface", "onnx", "peft")
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


@click.command(cls=Verb)
@trained_options
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="huggingface", show_default=True, help="What to write."
)
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Where to; ./NAME-FORMAT when not given.")
@click.option("--dtype", type=click.Choice(tuple(DTYPES)), default="bf16", show_default=True, help="Of huggingface.")
@click.pass_obj
def command(invocation: Invocation, handle: str, base: str | None, form: str, folder: Path | None, dtype: str) -> None:
    """Write a run's newest checkpoint, of any layout, as a folder that other software loads.

    launcher export latest                              AutoModelForCausalLM.from_pretrained
    launcher export latest --format onnx --to onnx/     ONNX Runtime, checked against torch
    launcher export latest --format peft                the adapters of a LoRA run alone
    """
    checkpoint = open_trained(invocation, handle, base=base)
    target = folder or Path(f"{checkpoint.name}-{form}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is there already", allowed="an empty or new folder", code="usage.export_folder")
    figures = _write(checkpoint.opened, form, target, dtype)
    document = {
        "handle": checkpoint.handle,
        "step": checkpoint.opened.step,
        "format": form,
        "folder": str(target),
        "bytes": sum(path.stat().st_size for path in target.rglob("*") if path.is_file()),
        **figures,
    }
    invocation.answer(document, lambda: "\n".join(_lines(document)))


def _write(checkpoint: Checkpoint, form: str, folder: Path, dtype: str) -> dict[str, Any]:
    """Write the folder; what there is to know of it besides its size."""
    model = checkpoint.recipe.model
    if form == "onnx":
        from launcher.training.export.onnx import export_onnx

        difference = export_onnx(checkpoint.weights, model, folder, tokenizer=checkpoint.tokenizer)
        return {"largest_difference": difference}
    if form == "peft":
        from launcher.training.export.peft import export_adapters

        export_adapters(checkpoint.weights, checkpoint.recipe, folder)
        return {}
    from launcher.training.export.huggingface import export_huggingface

    export_huggingface(checkpoint.weights, model, folder, dtype=DTYPES[dtype], tokenizer=checkpoint.tokenizer)
    return {"dtype": dtype}


def _lines(document: dict[str, Any]) -> list[str]:
    size = format_bytes(document["bytes"])
    lines = [f"written  {document['folder']}    {document['format']} of step {document['step']:,}, {size}"]
    if "largest_difference" in document:
        lines.append(
            f"checked  logits of ONNX Runtime and torch differ by {document['largest_difference']:.1e} at most"
        )
    return lines
