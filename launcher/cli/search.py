"""``launcher search``: the best layouts of a recipe over clusters and node counts, as overrides ready to paste."""

from __future__ import annotations

import re
import shlex
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from launcher.cli import terminal
from launcher.cli.invocation import Invocation, Verb
from launcher.cli.recipe_words import compose_words, recipe_words
from launcher.errors import UsageError
from launcher.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, format_bytes, format_dollars, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from launcher.compose.composer import Composed
    from launcher.plan.plan import Plan
    from launcher.plan.search_result import Candidate, ClusterChoice, SearchResult

MOST_INSTANCES = 100_000
_UNITS = {"d": SECONDS_PER_DAY, "h": SECONDS_PER_HOUR, "m": 60, "s": 1}
_RANGE = re.compile(r"(?P<first>\d+)(?:\.\.(?P<last>\d+)(?:\.\.(?P<step>\d+))?)?")


@click.command(cls=Verb)
@recipe_words
@click.option("--clusters", metavar="NAME,...", help="Choices of the cluster group; the recipe's own when not given.")
@click.option("--instances", metavar="8..128", help="VMs: 16, 8,16,32, 8..128 (doubling) or 8..128..8 (in steps).")
@click.option("--deadline", metavar="10d", help="Longest wall time: 10d, 36h, 90m.")
@click.option("--budget", metavar="DOLLARS", type=click.FloatRange(min=0), help="Largest bill.")
@click.option(
    "--minimize", type=click.Choice(["dollars", "hours", "energy"]), default="dollars", show_default=True, help="What."
)
@click.option("--top", type=click.IntRange(min=1, max=1000), default=10, show_default=True, help="Results shown.")
@click.option(
    "--headroom",
    type=click.FloatRange(min=0, max=90),
    default=5,
    show_default=True,
    help="Percent of memory left free.",
)
@click.pass_obj
def command(
    invocation: Invocation,
    words: tuple[str, ...],
    recipe_dirs: tuple[Path, ...],
    clusters: str | None,
    instances: str | None,
    deadline: str | None,
    budget: float | None,
    minimize: str,
    top: int,
    headroom: float,
) -> None:
    """Search every layout of a recipe over clusters and node counts; what is learnt never changes.

    launcher search gpt/175b --clusters nd_h100_v5,nd_h200_v5 --instances 8..128
    launcher search llama3/70b --instances 8..64..8 --deadline 10d      fewest VMs, tokens affordable
    launcher search gpt/13b --budget 200000 --minimize hours
    """
    from launcher.plan.search import search

    counts = parse_instances(instances) if instances else None
    seconds = parse_duration(deadline) if deadline else None
    composed = compose_words(invocation, words, recipe_dirs)
    choices = _choices(composed, words, recipe_dirs, clusters)
    start = perf_counter()
    result = search(
        composed.recipe,
        clusters=choices,
        instances=counts or (composed.recipe.cluster.instance_count,),
        deadline_seconds=seconds,
        budget_dollars=budget,
        minimize=minimize,  # type: ignore[arg-type]
        top=top,
        headroom=headroom / 100,
    )
    elapsed = perf_counter() - start
    invocation.answer(document(result, elapsed), lambda: "\n".join(_text(result, elapsed, words)))


def parse_instances(text: str) -> tuple[int, ...]:
    """``8..128`` doubles from 8, and ends with 128; ``8..128..8`` counts in eights; ``8,16`` is a list.

    Raises:
        UsageError: anything else.
    """
    counts: set[int] = set()
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        first, last, step = (int(value) if value else None for value in found.groups()) if found else (None,) * 3
        last = first if last is None else last
        if first is None or last is None or not 1 <= first <= last <= MOST_INSTANCES or step == 0:
            raise UsageError(
                f"--instances {text}: {part.strip()!r} is no number of VMs",
                allowed=f"1 to {MOST_INSTANCES:,}: 16, 8,16,32, 8..128 (doubling) or 8..128..8 (in steps of 8)",
                suggestion="--instances 8..128",
            )
        counts |= set(range(first, last + 1, step)) if step else _doubled(first, last)
    return tuple(sorted(counts))


def _doubled(first: int, last: int) -> set[int]:
    counts = {last}
    while first < last:
        counts.add(first)
        first *= 2
    return counts


def parse_duration(text: str) -> float:
    """``10d``, ``36h``, ``90m``, ``1.5d``: seconds.

    Raises:
        UsageError: not a positive number with one of these units.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([dhms])", text.strip().lower())
    if not found or float(found[1]) == 0:
        raise UsageError(f"--deadline {text} is no time", allowed="10d, 36h, 90m", suggestion="--deadline 10d")
    return float(found[1]) * _UNITS[found[2]]


def _choices(
    composed: Composed, words: Sequence[str], recipe_dirs: Sequence[Path], clusters: str | None
) -> tuple[ClusterChoice, ...]:
    """The recipe composed once for each cluster; its own is not composed again."""
    from launcher.cli.recipe_words import recipe_first
    from launcher.compose.composer import compose
    from launcher.plan.search_result import ClusterChoice

    own = composed.choices.get("cluster", "").removesuffix(".yaml")
    if not clusters:
        return (ClusterChoice(name=own or composed.recipe.cluster.instance_type, recipe=composed.recipe),)
    kept = [word for word in recipe_first(words) if not word.startswith("cluster=")]
    choices = []
    for name in dict.fromkeys(each.strip() for each in clusters.split(",")):
        override = f"cluster={name}"
        recipe = composed.recipe if name == own else compose([*kept, override], recipe_dirs=recipe_dirs).recipe
        choices.append(ClusterChoice(name=name, recipe=recipe, overrides=(override,)))
    return tuple(choices)


def document(result: SearchResult, seconds: float) -> dict[str, Any]:
    """The answer of ``--json``."""
    return {
        "candidates": result.candidates,
        "evaluated": result.evaluated,
        "seconds": seconds,
        "minimize": result.minimize,
        "deadline_seconds": result.limits.deadline_seconds,
        "budget_dollars": result.limits.budget_dollars,
        "results": [_candidate_document(each) for each in result.results],
        "frontier": [_candidate_document(each) for each in result.frontier],
        "places": [_candidate_document(each) for each in result.places],
        "answers": list(result.answers),
        "reasons": list(result.reasons),
        "unpriced": list(result.unpriced),
        "refusals": [
            {"cluster": each.cluster, "instance_count": each.instances, "reason": each.reason}
            for each in result.refusals
        ],
    }


def _candidate_document(candidate: Candidate) -> dict[str, Any]:
    plan = candidate.plan
    return {
        "cluster": candidate.cluster,
        "instance_count": candidate.instances,
        "world_size": plan.topology.world_size,
        "layout": candidate.layout,
        "overrides": list(candidate.overrides),
        "step_seconds": plan.time.step_seconds,
        "hours": plan.time.hours,
        "expected_hours": plan.time.expected_hours,
        "dollars": plan.cost.dollars,
        "kilowatt_hours": plan.energy.kilowatt_hours,
        "memory_bytes": plan.memory.bytes_per_gpu,
        "usable_bytes": plan.memory.usable_bytes,
        "verdict": plan.memory.verdict,
        "mfu": plan.time.mfu,
        "meets_limits": candidate.meets_limits,
        "affordable_tokens": candidate.affordable_tokens,
    }


def _text(result: SearchResult, seconds: float, words: Sequence[str]) -> list[str]:
    heading = f"{result.candidates:,} layouts, {result.evaluated:,} evaluated in {format_seconds(seconds)}"
    lines = [f"{heading}; least {result.minimize} first", ""]
    if result.results:
        lines += [*_table(result.results), "", *_pasted(result.results[0], words), ""]
    else:
        lines += ["nothing found inside the limits" if result.places else "nothing found", ""]
    if len(result.frontier) > 1 or not result.results:
        lines += [*_titled("time against money", _table(result.frontier)), ""] if result.frontier else []
    lines += [*_bullets(result.answers), *_bullets(result.reasons), *_bullets(_remarks(result))]
    return lines


def _titled(title: str, lines: list[str]) -> list[str]:
    return [terminal.bold(title), *lines]


def _bullets(sentences: Sequence[str]) -> list[str]:
    return [line for each in sentences for line in terminal.wrapped(f"- {each}", terminal.width(), indent="  ")]


HEADER = ("", "cluster", "VMs", "step", "takes", "dollars", "memory", "MFU", "layout")


def _table(candidates: Sequence[Candidate]) -> list[str]:
    rows = [(str(number), *_row(candidate)) for number, candidate in enumerate(candidates, start=1)]
    return terminal.titled_table(HEADER, rows, right={0, 2, 3, 4, 5, 6, 7})


def _row(candidate: Candidate) -> tuple[str, ...]:
    plan = candidate.plan
    return (
        candidate.cluster,
        f"{candidate.instances:,}",
        format_seconds(plan.time.step_seconds),
        format_seconds(plan.time.expected_hours * SECONDS_PER_HOUR),
        "unknown" if plan.cost.dollars is None else format_dollars(plan.cost.dollars),
        _memory(plan),
        "" if plan.time.mfu is None else f"{plan.time.mfu:.0%}",
        candidate.layout,
    )


def _memory(plan: Plan) -> str:
    """Share of what a GPU offers; bytes where that is unknown."""
    held, usable = plan.memory.bytes_per_gpu, plan.memory.usable_bytes
    return f"{held / usable:.0%}" if usable else format_bytes(held)


def _pasted(best: Candidate, words: Sequence[str]) -> list[str]:
    """The best as a command: what it overrides takes the place of the same keys among the user's own words."""
    keys = {override.partition("=")[0] for override in best.overrides}
    kept = [word for word in words if word.partition("=")[0].lstrip("+") not in keys or "=" not in word]
    return [" \\\n    ".join(["launcher plan " + " ".join(map(shlex.quote, kept)), *_filled(best.overrides)])]


def _filled(words: Sequence[str]) -> list[str]:
    """Words in lines of the terminal's width."""
    return terminal.wrapped(" ".join(words), terminal.width() - 6) if words else []


def _remarks(result: SearchResult) -> list[str]:
    """What the table does not show."""
    remarks = []
    if result.unpriced:
        order = ", so last under dollars and outside any budget" if result.minimize == "dollars" else ""
        remarks.append(
            f"price unknown: {', '.join(result.unpriced)}{order}; cluster.price_dollars_per_hour=... sets one"
        )
    refused: dict[str, list[str]] = {}
    for each in result.refusals:
        refused.setdefault(f"{each.cluster}: {each.reason}", []).append(f"{each.instances:,}")
    remarks += [f"{', '.join(counts)} x {reason}" for reason, counts in refused.items()]
    return remarks
