"""One rank that runs several jobs after another in one process: ``python many_runs.py JOB OUTPUT [JOB OUTPUT ...]``.

Starting Python, torch and transformers costs more than twenty steps of a tiny model, so tests of many layouts share it.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import asdict
from pathlib import Path

import torch.distributed as dist

from launcher.tracking.tracker import open_tracker
from launcher.training.assignment import read_assignment
from launcher.training.loop import train
from launcher.training.ranks import join, leave, read_ranks


def run(job: Path, output: Path) -> None:
    assignment = read_assignment(job, world_size=dist.get_world_size())
    ranks = read_ranks(os.environ, local_world_size=dist.get_world_size(), uses_gpu=False)
    output.mkdir(parents=True, exist_ok=True)
    tracker = open_tracker(assignment.document, output=output, rank=ranks.rank, plan=assignment.plan)
    outcome = train(assignment, ranks, tracker, output=output)
    tracker.finish("FINISHED")
    if ranks.leads:
        (output / "completed.json").write_text(json.dumps(asdict(outcome)))


def main() -> int:
    join(read_ranks(os.environ, local_world_size=int(os.environ["WORLD_SIZE"]), uses_gpu=False))
    for job, output in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        print(f"job {job}", flush=True)
        run(Path(job), Path(output))
    leave()
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
