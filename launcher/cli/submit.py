"""``launcher submit``: from a recipe to a run, through the plan and the budget."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from launcher.cli.handles import resolve_handle
from launcher.cli.invocation import Invocation, Verb, is_interactive
from launcher.cli.plan import planned, refusal
from launcher.cli.recipe_words import compose_words, recipe_words
from launcher.errors import ExitCode, PlanError, UsageError
from launcher.units import format_dollars, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.backends.backend import Submission
    from launcher.cli.sweep import Case
    from launcher.job.spec import JobSpec
    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe

EMULATOR_VARIABLE = "LAUNCHER_EMULATOR"
"""Set inside ``launcher emulator`` (launcher/emulator/emulator.py)."""


@click.command(cls=Verb)
@recipe_words
@click.option("--dry-run", is_flag=True, help="Print what would be sent, and stop.")
@click.option("--follow/--detach", help="Stay and watch until the run ends; or return at once (the default).")
@click.option(
    "--resume",
    metavar="HANDLE",
    help="Continue this run from its newest checkpoint, with its own recipe when none is given.",
)
@click.option("--attempt", type=click.IntRange(min=1), help="Run the same thing again: on Azure ML, its Nth job.")
@click.option("--allow-secret", metavar="DIGEST", multiple=True, help="What looks like a secret and is none.")
@click.option("--over-budget", is_flag=True, help="Submit a plan that is dearer than limits.budget_dollars.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before money is spent.")
@click.pass_obj
def command(
    invocation: Invocation,
    words: tuple[str, ...],
    recipe_dirs: tuple[Path, ...],
    dry_run: bool,
    follow: bool,
    resume: str | None,
    attempt: int | None,
    allow_secret: tuple[str, ...],
    over_budget: bool,
    yes: bool,
) -> None:
    """Plan a recipe, and run it where its cluster says: on this machine, or on Azure ML.

    launcher submit gpt/tiny --follow
    launcher submit gpt/tiny parallelism=deepspeed_zero2 training.train_steps=50
    launcher submit --resume latest
    launcher submit gpt/tiny training.seed=1,2,3 --follow      several values are several jobs
    """
    from launcher.cli.follow import follow_run
    from launcher.cli.sweep import plan_cases, sweep

    options = Options(
        dry_run=dry_run, attempt=attempt, allowed_secrets=allow_secret, over_budget=over_budget, follow=follow, yes=yes
    )
    lines = sweep(words, recipe_dirs)
    if len(lines) > 1:
        _require_several(invocation, resume=resume, follow=follow)
        _submit_sweep(invocation, plan_cases(invocation, lines, recipe_dirs), options)
        return
    parent = resolve_handle(invocation, resume) if resume else None
    recipe = _asked(invocation, words, recipe_dirs, parent)
    plan = _accepted_plan(invocation, recipe, over_budget=over_budget)
    job = _job(invocation, recipe, plan, parent, options)
    if dry_run:
        invocation.answer(_rendered(recipe, job), lambda: _rendered(recipe, job)["rendered"].rstrip("\n"))
        return
    _require_corpus(plan)
    if recipe.cluster.backend != "local":
        _confirm(f"{plan.hardware} for about {format_seconds(3600 * plan.time.hours)}", plan.cost.dollars, yes=yes)
    submission = _submitted(invocation, recipe, job, parent)
    if follow:
        follow_run(invocation, submission, plan)
        return
    invocation.answer(
        submission_document(submission.handle, state=submission.state, url=submission.url)
        | ({"was_there": True} if submission.was_there else {}),
        lambda: "\n".join(submission_lines(submission.handle, submission.url)),
    )


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to submit, as typed."""

    dry_run: bool
    follow: bool
    attempt: int | None
    allowed_secrets: tuple[str, ...]
    over_budget: bool
    yes: bool


def submission_document(handle: str, *, state: str, url: str | None) -> dict[str, Any]:
    """``{handle, name, attempt, state, url}``."""
    from launcher.backends import parse_handle
    from launcher.runs import journal

    return {
        "handle": handle,
        "name": parse_handle(handle)[1],
        "attempt": journal.find(handle).attempt,
        "state": state,
        "url": url,
    }


def submission_lines(handle: str, url: str | None) -> list[str]:
    """What was accepted, and what one does next."""
    return [
        f"submitted  {handle}    {url or ''}".rstrip(),
        f"next       launcher logs -f {handle}",
        *(f"           launcher {verb} {handle}" for verb in ("status", "report", "cancel")),
    ]


def _asked(invocation: Invocation, words: tuple[str, ...], recipe_dirs: tuple[Path, ...], parent: str | None) -> Recipe:
    """The recipe of the words; without words, that of the run to continue.

    Raises:
        UsageError: neither is given.
    """
    if words:
        return compose_words(invocation, words, recipe_dirs).recipe
    if parent is None:
        raise UsageError("which recipe?", suggestion="launcher submit gpt/tiny\nlauncher recipes")
    from launcher.runs.remembered import recipe_of

    return recipe_of(parent)


def _accepted_plan(invocation: Invocation, recipe: Recipe, *, over_budget: bool) -> Plan:
    """The plan, shown; refused when it has errors or is too dear."""
    from launcher.cli.plan_text import plan_lines

    plan = planned(recipe)
    if not invocation.json:
        invocation.say("\n".join([*plan_lines(plan, recipe, invocation.composed), ""]))
    refused = refusal(plan, over_budget=over_budget)
    if refused is not None:
        raise refused
    return plan


def _require_several(invocation: Invocation, *, resume: str | None, follow: bool) -> None:
    """Refuse what means one run.

    Raises:
        UsageError: ``--resume``, or ``--follow`` with ``--json``.
    """
    if resume:
        raise UsageError("--resume continues one run; these words ask for several", suggestion="one value a key")
    if follow and invocation.json:
        raise UsageError("--follow --json answers about one run; these words ask for several", suggestion="--detach")


def _submit_sweep(invocation: Invocation, cases: Sequence[Case], options: Options) -> None:
    """Show all jobs and their total, ask once, submit each; ``--follow`` runs one after the other."""
    from launcher.cli.sweep import first_refusal, sweep_lines, total_document, total_dollars

    if not invocation.json:
        invocation.say("\n".join([*sweep_lines(cases), ""]))
    refused = first_refusal(invocation, cases, over_budget=options.over_budget)
    if refused is not None:
        raise refused
    jobs = [_job(invocation, case.recipe, case.plan, None, options) for case in cases]
    total = total_document(cases)
    if options.dry_run:
        shown = [_rendered(case.recipe, job) for case, job in zip(cases, jobs, strict=True)]
        invocation.answer({"jobs": shown, "total": total}, lambda: "\n".join(each["rendered"] for each in shown))
        return
    for case in cases:
        _require_corpus(case.plan)
    if any(case.recipe.cluster.backend != "local" for case in cases):
        hours = total["device_hours"]
        _confirm(f"{len(cases)} jobs for {hours:,.0f} GPU-hours together", total_dollars(cases), yes=options.yes)
    if options.follow:
        _follow_each(invocation, cases, jobs)
        return
    sent = [_submitted(invocation, case.recipe, job, None) for case, job in zip(cases, jobs, strict=True)]
    documents = [submission_document(each.handle, state=each.state, url=each.url) for each in sent]
    handles = "\n".join(f"submitted  {each.handle}    {each.url or ''}".rstrip() for each in sent)
    invocation.answer({"jobs": documents, "total": total}, lambda: handles)


def _follow_each(invocation: Invocation, cases: Sequence[Case], jobs: Sequence[JobSpec]) -> None:
    """Run the jobs one after the other; the exit code is the first that tells of a failure."""
    from launcher.cli.follow import follow_run

    codes = []
    for case, job in zip(cases, jobs, strict=True):
        try:
            follow_run(invocation, _submitted(invocation, case.recipe, job, None), case.plan)
        except click.exceptions.Exit as end:
            codes.append(end.exit_code)
            if end.exit_code == ExitCode.INTERRUPTED:
                break
    if codes:
        raise click.exceptions.Exit(codes[0])


def _job(invocation: Invocation, recipe: Recipe, plan: Plan, parent: str | None, options: Options) -> JobSpec:
    from launcher.cli.staging import staged_snapshot
    from launcher.job.build import build_job
    from launcher.runs import journal
    from launcher.runs.remembered import checkpoints_of

    snapshot = staged_snapshot(invocation, recipe, Path.cwd(), allowed_secrets=options.allowed_secrets)
    following = 1 if parent is None else journal.find(parent).attempt + 1
    resume_from = None if parent is None else checkpoints_of(parent)
    return build_job(recipe, plan, snapshot, attempt=options.attempt or following, resume_from=resume_from)


def _submitted(invocation: Invocation, recipe: Recipe, job: JobSpec, parent: str | None) -> Submission:
    """Submit once; say so when the same thing was there already."""
    from launcher.runs.submission import submit

    submission = submit(recipe.cluster.backend, job, parent=parent)
    if submission.was_there:
        invocation.say(
            f"note: the same thing was submitted before, and is {submission.state}: nothing was sent; "
            f"--attempt {job.attempt + 1} runs it again"
        )
    return submission


def _rendered(recipe: Recipe, job: JobSpec) -> dict[str, Any]:
    """What the backend would be sent, without the recipe's secrets."""
    from launcher.backends import backend_for
    from launcher.tracking.description import describe

    text = backend_for(recipe.cluster.backend).render(job)
    return {
        "handle": f"{recipe.cluster.backend}:{job.name}",
        "name": job.name,
        "attempt": job.attempt,
        "state": None,
        "url": None,
        "rendered": describe(job.document, plan=None).without_secrets(text),
    }


def _require_corpus(plan: Plan) -> None:
    """Refuse to start what has nothing to read; planning and rendering need no corpus.

    Raises:
        PlanError: ``data.train`` is empty.
    """
    from launcher.cli.plan_text import finding_fault

    faults = [finding_fault(finding) for finding in plan.findings if finding.code == "plan.nothing_to_read"]
    if faults:
        raise PlanError(faults)


def _confirm(what: str, dollars: float | None, *, yes: bool) -> None:
    """Ask before money is spent; inside ``launcher emulator`` none is.

    Raises:
        UsageError: nobody is there to ask.
    """
    if yes or os.environ.get(EMULATOR_VARIABLE):
        return
    bill = "an unknown price" if dollars is None else f"about {format_dollars(dollars)}"
    question = f"This will use {what}, {bill}."
    if not is_interactive():
        raise UsageError(f"{question} Nobody is here to confirm it", suggestion="--yes", code="usage.confirmation")
    if not click.confirm(f"{question} Submit?", err=True):
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)
