"""``table.py BASE``: plans every recipe a change touches at every scale it declares, rehearses it, prints a table.

A recipe is touched when it resolves to something else than at the commit BASE: by its own file, or by any choice it
uses. It declares scales in its tags, as numbers of VMs: ``tags: {scales: "4 8 16"}``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PLANNED = ("recipe", "hardware", "memory per GPU", "step", "MFU", "dollars", "what is wrong")
REHEARSED = ("recipe", "rehearsed here as", "verdict")


@dataclass(frozen=True)
class Recipes:
    """A checkout, and the folder of recipes in it."""

    root: Path
    folder: str

    def names(self) -> list[str]:
        """Every recipe, sorted."""
        top = self.root / self.folder / "recipe"
        return sorted(path.relative_to(top).with_suffix("").as_posix() for path in top.rglob("*.yaml"))

    def ask(self, *words: str, seconds: float | None = None) -> dict[str, Any]:
        """One answer of ``launcher``."""
        command = ("launcher", *words, "--recipes", self.folder, "--json")
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, timeout=seconds, check=False)
        if not done.stdout:
            raise SystemExit(f"{' '.join(command)} says nothing:\n{done.stderr}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    cells: tuple[str, ...]
    is_fine: bool

    def text(self) -> str:
        """In Markdown."""
        return f"| {' | '.join(' '.join(cell.replace('|', '/').split()) for cell in self.cells)} |\n"


def main() -> int:
    """Print the tables; 1 if a recipe cannot run."""
    asked = _arguments()
    head = Recipes(Path.cwd(), asked.recipes)
    names = touched(head, asked.base)
    if not names:
        sys.stdout.write("No recipe is touched.\n")
        return 0
    planned = [plan(head, name, scale) for name in names for scale in scales(head, name)]
    rehearsed = rehearse(head, names, processes=asked.processes, seconds=60 * asked.smoke_minutes)
    sys.stdout.write(table(PLANNED, planned) + ("\n" + table(REHEARSED, rehearsed) if rehearsed else ""))
    return int(not all(row.is_fine for row in (*planned, *rehearsed)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="commit to compare with")
    parser.add_argument("--recipes", default="recipes", help="folder of recipes, below the checkout")
    parser.add_argument("--smoke-minutes", type=float, default=0, help="for all rehearsals together; 0: none")
    parser.add_argument("--processes", default="4", help="ranks of a rehearsal")
    return parser.parse_args()


def touched(head: Recipes, base: str) -> list[str]:
    """Recipes that resolve to something else than where this branch left that of ``base``."""
    parting = subprocess.run(("git", "merge-base", base, "HEAD"), check=True, capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "base"
        commit = parting.stdout.strip()
        subprocess.run(("git", "worktree", "add", "--quiet", "--detach", str(before), commit), check=True)
        try:
            then = Recipes(before, head.folder)
            known = set(then.names())
            return [name for name in head.names() if name not in known or resolved(then, name) != resolved(head, name)]
        finally:
            subprocess.run(("git", "worktree", "remove", "--force", str(before)), check=True)


def resolved(recipes: Recipes, name: str) -> Any:
    """Every key of a recipe; what is wrong with it when it cannot be composed."""
    answer = recipes.ask("recipes", "show", name)
    return answer.get("recipe", answer)


def scales(recipes: Recipes, name: str) -> list[int | None]:
    """Numbers of VMs: the recipe's own (None), and those of its tag."""
    recipe = resolved(recipes, name)
    own = recipe.get("cluster", {}).get("instance_count")
    declared = {int(word) for word in recipe.get("tags", {}).get("scales", "").replace(",", " ").split()}
    return [None, *sorted(declared - {own})]


def plan(recipes: Recipes, name: str, scale: int | None) -> Row:
    """What a recipe promises at one scale."""
    planned = recipes.ask("plan", name, *(() if scale is None else (f"cluster.instance_count={scale}",)))
    errors = "; ".join(fault["what"] for fault in planned.get("error", {}).get("faults", ()))
    if "memory" not in planned:
        return Row((name, f"{scale or ''}", "", "", "", "", errors), is_fine=False)
    memory, duration, dollars = planned["memory"], planned["time"], planned["cost"]["dollars"]
    cells = (
        name,
        planned["hardware"],
        f"{memory['bytes_per_gpu'] / 2**30:.1f} GiB, {memory['verdict']}",
        f"{duration['step_seconds']:.2f} s",
        "?" if duration["mfu"] is None else f"{100 * duration['mfu']:.0f} %",
        "?" if dollars is None else f"{dollars:,.0f}",
        errors,
    )
    return Row(cells, is_fine="error" not in planned)


def rehearse(recipes: Recipes, names: list[str], *, processes: str, seconds: float) -> list[Row]:
    """``launcher smoke`` of each recipe, as long as there is time."""
    deadline = time.monotonic() + seconds
    return [_rehearsal(recipes, name, processes, deadline - time.monotonic()) for name in names] if seconds else []


def _rehearsal(recipes: Recipes, name: str, processes: str, seconds: float) -> Row:
    late = Row((name, "", "not rehearsed: the time for it is over"), is_fine=True)
    if seconds <= 0:
        return late
    try:
        report = recipes.ask("smoke", name, "--processes", processes, seconds=seconds)
    except subprocess.TimeoutExpired:
        return late
    if "error" in report:
        return Row((name, "", report["error"]["message"]), is_fine=False)
    verdict = f"{report['verdict']} in {report['seconds']:.0f} s. {report['reason'] or ''}"
    return Row((name, report["rehearsed"], verdict), is_fine=report["verdict"] == "passed")


def table(header: tuple[str, ...], rows: list[Row]) -> str:
    """Markdown."""
    lines = (Row(header, is_fine=True), Row(("---",) * len(header), is_fine=True), *rows)
    return "".join(line.text() for line in lines)


if __name__ == "__main__":
    sys.exit(main())
