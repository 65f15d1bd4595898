"""``launcher doctor``: whether this machine can submit to Azure ML, and what to do if not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher.cli import terminal
from launcher.cli.invocation import Invocation, Verb
from launcher.errors import ExitCode

if TYPE_CHECKING:
    from launcher.backends.azureml.doctor import Check


@click.command(cls=Verb)
@click.pass_obj
def command(invocation: Invocation) -> None:
    """Look at versions, sign-in, clock, workspace, role, registry, datastore and quota; say what mends each failure.

    Exit code 4 if anything fails. Nothing is changed but a small file in the datastore, written and deleted.

    launcher doctor
    """
    from launcher.backends.azureml.doctor import examine

    checks = []
    for check in examine():
        checks.append(check)
        if not invocation.json:
            click.echo("\n".join(_lines(check)))
    if invocation.json:
        rows = [{"name": c.name, "level": c.level, "what": c.what, "try": c.suggestion} for c in checks]
        invocation.answer({"checks": rows, "ok": not _failed(checks)}, str)
    if _failed(checks):
        raise click.exceptions.Exit(ExitCode.BACKEND)


def _failed(checks: list[Check]) -> bool:
    return any(check.level == "FAIL" for check in checks)


def _lines(check: Check) -> list[str]:
    paint = {"ok": terminal.green, "warn": terminal.yellow, "FAIL": terminal.red, "skip": terminal.dim}[check.level]
    head = f"{terminal.pad(paint(check.level), 6)}{check.name}: "
    lines = terminal.wrapped(check.what, terminal.width() - 6)
    following = [f"{'':6}{line}" for line in lines[1:]]
    return [head + lines[0], *following, *([f"{'':6}try  {check.suggestion}"] if check.suggestion else [])]
