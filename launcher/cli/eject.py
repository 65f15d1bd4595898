"""``launcher eject``: the job as plain Azure ML files, with no dependency on us."""

from __future__ import annotations

from pathlib import Path

import click

from launcher.cli.invocation import Invocation, Verb
from launcher.cli.recipe_words import compose_words, recipe_words


@click.command(cls=Verb)
@click.argument("folder", type=click.Path(path_type=Path, exists=False))
@recipe_words
@click.pass_obj
def command(invocation: Invocation, folder: Path, words: tuple[str, ...], recipe_dirs: tuple[Path, ...]) -> None:
    """Write FOLDER with job.yaml, job.json, the code, the environment and the DeepSpeed JSON; 'az ml' runs it.

    launcher eject ./gpt-13b gpt/13b cluster=nd_h100_v5 cluster.instance_count=16
    """
    from launcher.cli.staging import staged_snapshot
    from launcher.job.build import build_job
    from launcher.plan.planner import make_plan
    from launcher.runs.eject import eject

    recipe = compose_words(invocation, words, recipe_dirs).recipe
    plan = make_plan(recipe)
    job = build_job(recipe, plan, staged_snapshot(invocation, recipe, Path.cwd()))
    written = eject(job, recipe, plan, folder)
    document = {
        "folder": str(folder),
        "files": [str(path) for path in written],
        "command": "az ml job create -f job.yaml",
    }
    lines = [
        f"wrote      {folder}: {', '.join(map(str, written))}",
        f"next       cd {folder} && az ml job create -f job.yaml",
    ]
    invocation.answer(document, lambda: "\n".join(lines))
