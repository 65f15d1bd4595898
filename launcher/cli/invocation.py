"""One call of the command: how it answers, and what it knows when something goes wrong.

stdout is the answer (text, or one JSON document under ``--json``); stderr is talk.
"""

from __future__ import annotations

import inspect
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from launcher.compose.composer import Composed


@dataclass
class Invocation:
    """What every verb is handed (``click.pass_obj``)."""

    json: bool = False
    """Whether the answer is one JSON document."""
    debug: bool = False
    """Whether an unexpected exception keeps its traceback."""
    composed: Composed | None = None
    """The recipe in hand, once there is one: it knows where each key was set."""

    def answer(self, document: Any, text: Callable[[], str]) -> None:
        """Print ``document`` as JSON under ``--json``, else ``text()``."""
        if self.json:
            import json

            click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
        else:
            click.echo(text())

    def say(self, text: str) -> None:
        """Talk: a line on stderr."""
        click.echo(text, err=True, color=prefers_color(sys.stderr))

    def progress(self, text: str) -> None:
        """Talk that replaces itself: the last line of stderr, on a terminal only."""
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{text}", err=True, nl=False, color=True)

    def end_progress(self) -> None:
        """Clear what ``progress`` last said."""
        self.progress("")


class Verb(click.Command):
    """A command with the options that every verb takes. Its help is shown as it is after the first paragraph."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.help = inspect.cleandoc(self.help or "").replace("\n\n", "\n\n\b\n")
        self.params += [
            click.Option(["--json"], is_flag=True, expose_value=False, help="Answer with one JSON document on stdout."),
            click.Option(
                ["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an unexpected error."
            ),
        ]


class VerbGroup(click.Group):
    """Commands by name; a name that is none of them is refused with its near misses. Without a name: help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show help when there is nothing to parse."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` begin with."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            from launcher.cli.failure import unknown_verb

            raise unknown_verb(args[0], names, program=ctx.command_path)
        return super().resolve_command(ctx, args)


def prefers_color(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal that wants colour (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_interactive() -> bool:
    """Whether a person can be asked: both ends of the conversation are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()
