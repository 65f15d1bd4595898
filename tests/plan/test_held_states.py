"""The plan's bytes of state against what two real ranks hold after a step, engine by engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launcher.plan.planner import make_plan
from tests.training.runs import job_document, rank_environments, tiny_recipe

if TYPE_CHECKING:
    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe

pytest.importorskip("torch")
pytest.importorskip("deepspeed")

RANKS = 2
CASES = (
    ("ddp", 0, "fp32"),
    ("ddp", 0, "bf16"),
    ("fsdp", 1, "fp32"),
    ("fsdp", 3, "bf16"),
    ("deepspeed", 0, "bf16"),
    ("deepspeed", 1, "fp32"),
    ("deepspeed", 1, "bf16"),
    ("deepspeed", 2, "bf16"),
    ("deepspeed", 3, "fp32"),
    ("deepspeed", 3, "bf16"),
)
SCRIPT = Path(__file__).parents[1] / "training" / "held_states.py"


def asked(engine: str, stage: int, precision: str) -> Recipe:
    """61,120 parameters: halves of every weight are whole numbers, so nothing is padded."""
    return tiny_recipe(
        model={"num_hidden_layers": 4, "vocab_size": 256},
        training={"precision": precision, "global_batch_size": 4},
        parallelism={"engine": engine, "zero_stage": stage},
        cluster={"processes_per_instance": RANKS},
    )


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int, str], list[dict[str, int]]]:
    """Bytes on each rank, by case; all cases in the same two processes."""
    folder = tmp_path_factory.mktemp("held")
    folders = {case: folder / "-".join(map(str, case)) for case in CASES}
    for case, place in folders.items():
        place.mkdir()
        (place / "job.json").write_text(json.dumps(job_document(asked(*case))))
    jobs = [str(place / "job.json") for place in folders.values()]
    logs = [folder / f"rank-{rank}.log" for rank in range(RANKS)]
    ranks = []
    for log, environment in zip(logs, rank_environments(RANKS, folder), strict=True):
        with log.open("wb") as stream:
            command = [sys.executable, str(SCRIPT), *jobs]
            ranks.append(subprocess.Popen(command, env=environment, stdout=stream, stderr=stream))
    assert [rank.wait(timeout=300) for rank in ranks] == [0] * RANKS, "\n".join(log.read_text() for log in logs)
    return {
        case: [json.loads((place / f"held-{rank}.json").read_text()) for rank in range(RANKS)]
        for case, place in folders.items()
    }


def planned(plan: Plan, name: str) -> int:
    """The bytes of the lines that begin with ``name``."""
    return sum(line.bytes for line in plan.memory.lines if line.name.startswith(name))


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_ranks_hold_the_bytes_of_state_that_are_planned(
    case: tuple[str, int, str], held: dict[tuple[str, int, str], list[dict[str, int]]]
) -> None:
    engine, stage, precision = case
    plan = make_plan(asked(*case))
    # DeepSpeed's 16-bit optimizers make fp32 gradients for the update alone, which the plan counts: 4 of 16 bytes.
    for_the_update = (
        4 * plan.parameters / (RANKS if stage else 1) if (engine, precision) == ("deepspeed", "bf16") else 0
    )

    for rank in held[case]:
        assert rank["parameters"] == planned(plan, "parameters")
        assert rank["optimizer"] == planned(plan, "optimizer state") - for_the_update
        if engine != "deepspeed" or stage == 0:  # ZeRO takes gradients away from the parameters as they come
            assert rank["gradients"] == planned(plan, "gradients")
