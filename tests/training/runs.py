"""Real runs of the trainer for tests: one process per rank over gloo, tiny models, on this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from launcher.plan.planner import make_plan
from launcher.recipe import codec
from launcher.recipe.schema import (
    Checkpoint,
    Cluster,
    Data,
    Model,
    Optimizer,
    Parallelism,
    Recipe,
    Schedule,
    Tracking,
    Training,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECONDS = 240
"""No run of these tests takes longer on a busy two-core machine."""
MANY_SECONDS = 1800
"""Nor do many in the same processes: a rank that fails ends the others at once, so this only meets a hang."""


def tiny_recipe(**changes: Any) -> Recipe:
    """A two-layer GPT over bytes; ``changes`` are sections (``training={...}``) laid over it, key by key."""
    recipe = Recipe(
        name="tiny",
        model=Model(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=257,
                    max_position_embeddings=64),
        training=Training(
            seq_length=32, global_batch_size=8, micro_batch_size=2, train_steps=20, precision="fp32",
            evaluation_batches=1, optimizer=Optimizer(learning_rate=3e-3), schedule=Schedule(warmup_steps=4),
        ),
        parallelism=Parallelism(),
        data=Data(train=("demo",)),
        cluster=Cluster(processes_per_instance=1),
        checkpoint=Checkpoint(),
        tracking=Tracking(enabled=False),
    )  # fmt: skip
    return cast("Recipe", _changed(recipe, changes))


def _changed(section: Any, changes: Mapping[str, Any]) -> Any:
    """A section with ``changes`` laid over it; a mapping changes the section of that name."""
    new = {
        name: _changed(getattr(section, name), value)
        if isinstance(value, dict) and is_dataclass(getattr(section, name))
        else value
        for name, value in changes.items()
    }
    return replace(section, **new)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A run that has ended."""

    exit_codes: tuple[int, ...]
    """By rank; negative is the signal that ended it."""
    output: Path
    logs: tuple[str, ...]
    """Standard output and error, by rank."""

    @property
    def losses(self) -> list[float]:
        """Training loss by step, of the last attempt alone."""
        return self.series("loss")

    def series(self, name: str) -> list[float]:
        """A metric by step, of the last attempt alone."""
        last = self.rows[-1]["attempt"]
        return [row["metrics"][name] for row in self.rows if row["attempt"] == last and name in row["metrics"]]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The spool as it was written."""
        return [json.loads(line) for line in (self.output / "metrics.jsonl").read_text().splitlines()]

    @property
    def completed(self) -> dict[str, Any]:
        """The run's own record."""
        record: dict[str, Any] = json.loads((self.output / "completed.json").read_text())
        return record


class Run:
    """A run that is going on."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        *,
        resume_from: Path | None = None,
        document: Mapping[str, Any] | None = None,
        variables: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """``document``: laid over the job's; ``variables``: environment variables of each rank's own."""
        folder.mkdir(parents=True, exist_ok=True)
        self.output = folder / "output"
        written = {**job_document(recipe, resume_from=resume_from), **(document or {})}
        self.plan_digest: str = job_document(recipe)["plan_digest"]
        self.job = folder / "job.json"
        self.job.write_text(json.dumps(written))
        self.world = (recipe.cluster.processes_per_instance or 1) * recipe.cluster.instance_count
        command = [sys.executable, "-m", "launcher.training", str(self.job), "--output", str(self.output)]
        self.log_paths = [folder / f"rank-{rank:05d}.log" for rank in range(self.world)]
        self.processes = [
            _start(command, log, {**environment, **own})
            for log, environment, own in zip(
                self.log_paths, rank_environments(self.world, folder), variables or [{}] * self.world, strict=True
            )
        ]

    def wait(self) -> Finished:
        """Wait for every rank; kill what is left when the time is over."""
        codes = _wait(self.processes, seconds=SECONDS)
        return Finished(exit_codes=codes, output=self.output, logs=tuple(log.read_text() for log in self.log_paths))

    def kill(self) -> None:
        """End every rank at once."""
        for process in self.processes:
            process.kill()
            process.wait()

    def wait_for(self, text: str) -> None:
        """Return as soon as rank 0 has said ``text``."""
        deadline = time.monotonic() + SECONDS
        while text not in self.log_paths[0].read_text():
            assert time.monotonic() < deadline, f"never said {text!r}:\n{self.log_paths[0].read_text()}"
            assert self.processes[0].poll() is None, self.log_paths[0].read_text()
            time.sleep(0.01)


def _wait(processes: list[subprocess.Popen[bytes]], *, seconds: float) -> tuple[int, ...]:
    """Exit codes; once one rank has failed, the others get a short while to notice, then all are killed."""
    deadline = time.monotonic() + seconds
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        if any(process.poll() for process in processes):
            deadline = min(deadline, time.monotonic() + 20)
        time.sleep(0.05)
    for process in processes:
        process.kill()
        process.wait()
    return tuple(process.returncode for process in processes)


def _start(command: list[str], log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("wb") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=environment)


def train(recipe: Recipe, folder: Path, *, resume_from: Path | None = None) -> Finished:
    """Run ``recipe`` to its end and insist that it completed."""
    finished = Run(recipe, folder, resume_from=resume_from).wait()
    assert set(finished.exit_codes) == {0}, "\n".join(finished.logs)
    return finished


def train_many(
    recipes: Mapping[str, Recipe], folder: Path, *, resume_from: Mapping[str, Path] | None = None
) -> dict[str, Finished]:
    """Run several recipes by name, those of one world size in the same processes, and insist that all complete."""
    by_world: dict[int, dict[str, Recipe]] = {}
    for name, recipe in recipes.items():
        by_world.setdefault(recipe.cluster.processes_per_instance or 1, {})[name] = recipe
    finished: dict[str, Finished] = {}
    for world, some in by_world.items():
        finished |= _train_in_turn(world, some, folder, resume_from or {})
    return finished


def _train_in_turn(
    world: int, recipes: dict[str, Recipe], folder: Path, resume_from: Mapping[str, Path]
) -> dict[str, Finished]:
    pairs = []
    for name, recipe in recipes.items():
        job = folder / name / "job.json"
        job.parent.mkdir(parents=True, exist_ok=True)
        job.write_text(json.dumps(job_document(recipe, resume_from=resume_from.get(name))))
        pairs += [str(job), str(folder / name / "output")]
    logs = [folder / f"world-{world}-rank-{rank}.log" for rank in range(world)]
    environments = rank_environments(world, folder)
    command = [sys.executable, str(Path(__file__).with_name("many_runs.py")), *pairs]
    processes = [_start(command, log, environment) for log, environment in zip(logs, environments, strict=True)]
    codes = _wait(processes, seconds=MANY_SECONDS)
    texts = tuple(log.read_text() for log in logs)
    assert set(codes) == {0}, "\n".join(texts)
    return {name: Finished(exit_codes=codes, output=folder / name / "output", logs=texts) for name in recipes}


def job_document(recipe: Recipe, *, resume_from: Path | None = None) -> dict[str, Any]:
    """``job.json`` as ``build_job`` writes it."""
    plan = make_plan(recipe)
    return {
        "schema_version": 1,
        "name": "tiny-1",
        "attempt": 1,
        "recipe": codec.encode(recipe),
        "recipe_digest": plan.recipe_digest,
        "plan_digest": plan.plan_digest,
        "world_size": plan.topology.world_size,
        "resume_from": str(resume_from) if resume_from else None,
    }


def rank_environments(world: int, folder: Path) -> list[dict[str, str]]:
    """The environment of every rank, as torchrun sets it; caches are shared by the runs of one session."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))),
        "LAUNCHER_HOME": os.environ.get("LAUNCHER_HOME", str(folder.parent / "home")),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
    }
    return [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]
