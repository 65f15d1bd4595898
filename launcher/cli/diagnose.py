"""``launcher diagnose``: why a run waits, or why it died, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from launcher.cli import terminal
from launcher.cli.handles import handle_argument, resolve_handle
from launcher.cli.invocation import Invocation, Verb

if TYPE_CHECKING:
    from launcher.runs.diagnose import Diagnosis


@click.command(cls=Verb)
@handle_argument(required=False)
@click.pass_obj
def command(invocation: Invocation, handle: str | None) -> None:
    """Say why a run waits or why it died, and what to do next. Without HANDLE: the newest run.

    Joins the service's words, exit codes and the logs of all ranks: which rank failed first, and of what.

    launcher diagnose latest
    """
    from launcher.runs.diagnose import diagnose

    diagnosis = diagnose(resolve_handle(invocation, handle))
    invocation.answer(diagnosis_document(diagnosis), lambda: "\n".join(diagnosis_lines(diagnosis)))


def diagnosis_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """``{handle, state, kind, what, rank, evidence[], next[], may_pass}``."""
    return {
        "handle": diagnosis.handle,
        "state": diagnosis.state,
        "kind": diagnosis.kind,
        "what": diagnosis.what,
        "rank": diagnosis.rank,
        "evidence": list(diagnosis.evidence),
        "next": list(diagnosis.next),
        "may_pass": diagnosis.may_pass,
    }


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """What, then the evidence, then the next steps."""
    from launcher.cli.status import paint_state

    rank = "" if diagnosis.rank is None else f" (rank {diagnosis.rank})"
    head = f"{paint_state(diagnosis.state)}  {diagnosis.handle}"
    what = terminal.wrapped(f"{diagnosis.what}{rank}", terminal.width() - 9)
    return [
        head,
        *terminal.labelled(diagnosis.kind, what, size=max(9, len(diagnosis.kind) + 2)),
        *(f"  {terminal.dim(line)}" for line in diagnosis.evidence),
        *terminal.labelled("next", diagnosis.next),
    ]
