"""``launcher emulator``: a command run inside an Azure ML that is this machine."""

from __future__ import annotations

from pathlib import Path

import click

from launcher.cli.invocation import Invocation, Verb
from launcher.errors import UsageError


@click.command(cls=Verb, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Keep blobs and jobs here.")
@click.option("--processes", default=32, show_default=True, type=click.IntRange(min=0), help="Of jobs, at once.")
@click.option("--quota", multiple=True, metavar="FAMILY=VCPUS", help="Cores of a VM family; repeatable.")
@click.argument("words", metavar="-- COMMAND ...", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def command(
    invocation: Invocation, folder: Path | None, processes: int, quota: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """Run COMMAND inside an emulated Azure ML workspace; its exit code is the command's.

    The Azure SDK inside is unmodified; blobs lie in Azurite; jobs are processes of this machine. Nothing inside can
    reach the real Azure.

    launcher emulator -- launcher submit gpt/tiny cluster=azureml_cpu --follow --yes
    launcher emulator -- pytest tests/azureml
    """
    from launcher.emulator.command import run_inside
    from launcher.emulator.settings import Settings

    if not words:
        raise UsageError("which command?", suggestion="launcher emulator -- launcher doctor")
    settings = Settings(processes=processes, cores_by_family=dict(map(_family, quota)))
    code = run_inside(words, settings, folder=folder)
    if code:
        raise click.exceptions.Exit(code)


def _family(text: str) -> tuple[str, int]:
    family, equals, cores = text.rpartition("=")
    if not equals or not cores.isdecimal():
        raise UsageError(f"--quota {text}", allowed="FAMILY=VCPUS, such as standardNDSH100v5Family=192")
    return family, int(cores)
