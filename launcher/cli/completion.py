"""``launcher completion bash``: the script to source; and what that script asks of us at every TAB."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, CompletionItem, get_completion_class

from launcher.cli.invocation import Invocation, Verb

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_LAUNCHER_COMPLETE"
BREAKS = "=:"
"""Characters at which bash cuts words (``COMP_WORDBREAKS``) and we do not: ``cluster=nd_h100_v5``, ``local:NAME``."""


@click.command(cls=Verb)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_obj
def command(invocation: Invocation, shell: str) -> None:
    """Print the completion script of a shell.

    bash  echo 'eval "$(launcher completion bash)"' >> ~/.bashrc
    zsh   echo 'eval "$(launcher completion zsh)"'  >> ~/.zshrc
    fish  launcher completion fish > ~/.config/fish/completions/launcher.fish
    """
    script = _shell(click.get_current_context().find_root().command, shell).source()
    invocation.answer({"shell": shell, "script": script}, lambda: script.rstrip("\n"))


def answer_shell(root: click.Command, instruction: str) -> int:
    """Complete the words the script put in the environment; ``instruction`` is ``bash_complete`` and the like."""
    shell, _, what = instruction.partition("_")
    if shell not in SHELLS or what != "complete":
        return 1
    click.echo(_shell(root, shell).complete())
    return 0


class _WholeWords(BashComplete):
    """bash, with its words put together again where it cut them at ``=`` and ``:``, and no space after ``key=``."""

    source_template = BashComplete.source_template.replace(
        "    return 0\n", "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n    return 0\n"
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        arguments, incomplete = super().get_completion_args()
        *whole, last = _joined([*arguments, incomplete])
        self.cut = max(last.rfind(character) for character in BREAKS) + 1
        return whole, last

    def format_completion(self, item: CompletionItem) -> str:
        """Only what follows the last cut: bash keeps the rest of the word."""
        return f"{item.type},{item.value[self.cut :]}"


def _shell(root: click.Command, shell: str) -> click.shell_completion.ShellComplete:
    known = _WholeWords if shell == "bash" else get_completion_class(shell)
    assert known is not None, f"click completes {SHELLS}"
    return known(root, {}, "launcher", VARIABLE)


def _joined(words: list[str]) -> list[str]:
    """``cluster``, ``=``, ``nd`` as ``cluster=nd``."""
    whole: list[str] = []
    is_open = False
    for word in words:
        is_break = bool(word) and all(character in BREAKS for character in word)
        if whole and (is_break or is_open):
            whole[-1] += word
        else:
            whole.append(word)
        is_open = is_break
    return whole
