"""Handles of runs on the command line: ``local:NAME``, a beginning of it, or ``latest``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

    from launcher.cli.invocation import Invocation

Function = TypeVar("Function", bound="Callable[..., Any]")


def handle_argument(*, required: bool) -> Callable[[Function], Function]:
    """Add ``handle``; when it is not required, the newest run is meant."""
    metavar = "HANDLE" if required else "[HANDLE]"
    return click.argument("handle", metavar=metavar, required=required, shell_complete=_complete)


def resolve_handle(invocation: Invocation, text: str | None) -> str:
    """The handle meant by ``text``; which one ``latest`` is gets said.

    Raises:
        NoSuchRunError: no run is meant by it, or more than one.
    """
    from launcher.runs import journal

    handle = journal.resolve(text or journal.LATEST)
    if text in {None, journal.LATEST}:
        invocation.say(f"latest is {handle}")
    return handle


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from launcher.runs import journal

    handles = (journal.LATEST, *(row.handle for row in journal.rows()))
    return [CompletionItem(handle) for handle in handles if handle.startswith(incomplete)]
