"""``launcher data upload``: a folder becomes a versioned data asset."""

from __future__ import annotations

from pathlib import Path

import click

from launcher.cli.invocation import Invocation, Verb
from launcher.units import format_bytes


@click.command(cls=Verb)
@click.argument("source", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--name", required=True, help="Of the data asset.")
@click.option("--version", help="Of the data asset; from the folder's content list when not given.")
@click.pass_obj
def upload(invocation: Invocation, source: Path, name: str, version: str | None) -> None:
    """Upload a folder and register it; one that broke off goes on where it was.

    launcher data upload corpora --name books
    """
    from launcher.backends.azureml.backend import AzureMLBackend
    from launcher.backends.azureml.datasets import upload

    total, done = sum(path.stat().st_size for path in source.rglob("*") if path.is_file()), 0

    def progress(size: int) -> None:
        nonlocal done
        done += size
        invocation.progress(f"{format_bytes(done)} of {format_bytes(total)}")

    made = upload(AzureMLBackend().client(), source, name, version=version, progress=progress)
    invocation.end_progress()
    document = {
        "reference": made.reference,
        "files": made.files,
        "bytes": made.bytes,
        "sent_bytes": made.sent_bytes,
    }
    lines = [
        f"uploaded   {made.reference}: {made.files:,} files, {format_bytes(made.bytes)} "
        f"({format_bytes(made.sent_bytes)} sent now)",
        f"next       launcher submit RECIPE 'data.train=[{made.reference}]'",
    ]
    invocation.answer(document, lambda: "\n".join(lines))
