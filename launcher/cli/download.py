"""``launcher download``: what a run left, on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from launcher.cli.handles import handle_argument, resolve_handle
from launcher.cli.invocation import Invocation, Verb
from launcher.units import format_bytes


@click.command(cls=Verb)
@handle_argument(required=True)
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Where to; ./NAME when not given.")
@click.option("--only", metavar="PATTERN", default="*", show_default=True, help="Files that match, as a shell would.")
@click.option("--newest", is_flag=True, help="Of the checkpoints, the newest alone.")
@click.pass_obj
def command(invocation: Invocation, handle: str, folder: Path | None, only: str, newest: bool) -> None:
    """Download checkpoints, metrics and everything else a run left in its output. What is there already is kept.

    launcher download latest --newest
    launcher download latest --only 'metrics.jsonl'
    """
    from fnmatch import fnmatchcase

    from launcher.backends import parse_handle
    from launcher.backends.azureml.backend import AzureMLBackend
    from launcher.errors import UsageError
    from launcher.runs.trained import without_older_checkpoints

    handle = resolve_handle(invocation, handle)
    backend, name = parse_handle(handle)
    if backend == "local":
        raise UsageError(f"{handle} is on this machine already", suggestion=f"launcher open {handle}")
    output, target = AzureMLBackend().output(handle), folder or Path(name)
    wanted = [blob for blob in output.files() if fnmatchcase(blob.path, only)]
    wanted = without_older_checkpoints(wanted) if newest else wanted
    total, done = sum(blob.bytes for blob in wanted), 0

    def progress(size: int) -> None:
        nonlocal done
        done += size
        invocation.progress(f"{format_bytes(done)} of {format_bytes(total)}")

    output.fetch(wanted, target, progress=progress)
    invocation.end_progress()
    document = {"handle": handle, "folder": str(target), "files": len(wanted), "bytes": total}
    invocation.answer(document, lambda: f"{len(wanted)} files, {format_bytes(total)}, in {target}")
