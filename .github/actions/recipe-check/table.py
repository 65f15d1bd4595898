"""``table.py CHANGED TABLE``: plan every recipe that a list of changed files touches, as a Markdown table.

A changed recipe is planned as it is; a changed group choice (a cluster, a model) through every recipe that has it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HEADER = "| recipe | hardware | memory per GPU | step | MFU | dollars | |\n|---|---|---|---|---|---|---|\n"


def main(changed: Path, table: Path) -> int:
    """Write the table; 1 if a recipe cannot run."""
    names = touched(changed.read_text().split())
    rows = [row(name) for name in names]
    text = HEADER + "".join(line for line, _ in rows) if rows else "No recipe is touched.\n"
    table.write_text(text)
    return int(any(not fine for _, fine in rows))


def touched(paths: list[str]) -> list[str]:
    """Recipes among the changed files, and recipes that name a changed choice."""
    recipes = {
        path.relative_to("recipes/recipe").with_suffix("").as_posix(): path
        for path in Path("recipes/recipe").rglob("*.yaml")
    }
    choices = [Path(path).relative_to("recipes").with_suffix("") for path in paths if path.count("/") >= 2]
    words = {"/".join(choice.parts[1:]) for choice in choices if choice.parts[0] != "recipe"}
    direct = {"/".join(choice.parts[1:]) for choice in choices if choice.parts[0] == "recipe"}
    using = {name for name, path in recipes.items() if words & set(path.read_text().replace(":", " ").split())}
    return sorted((direct | using) & recipes.keys())


def row(name: str) -> tuple[str, bool]:
    """One recipe's line, and whether it can run."""
    done = subprocess.run(("launcher", "plan", name, "--json"), capture_output=True, text=True, check=False)
    plan: dict[str, Any] = json.loads(done.stdout)
    if "error" in plan:
        return f"| {name} | | | | | | {plan['error']['message']} |\n", False
    memory, time, dollars = plan["memory"], plan["time"], plan["cost"]["dollars"]
    mfu = "?" if time["mfu"] is None else f"{100 * time['mfu']:.0f} %"
    errors = "; ".join(found["message"] for found in plan["findings"] if found["level"] == "error")
    cells = (
        name,
        plan.get("hardware", ""),
        f"{memory['bytes_per_gpu'] / 2**30:.1f} GiB, {memory['verdict']}",
        f"{time['step_seconds']:.2f} s",
        mfu,
        "?" if dollars is None else f"{dollars:,.0f}",
        errors,
    )
    return f"| {' | '.join(cells)} |\n", done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
