"""One rank that runs several jobs after another in one process: ``python many_runs.py PORT JOB OUTPUT [JOB OUTPUT ...]``.

Starting Python, torch and transformers costs more than twenty steps of a tiny model, so tests of many layouts share it.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import asdict
from pathlib import Path

from launcher.tracking.tracker import open_tracker
from launcher.training.assignment import read_assignment
from launcher.training.loop import train
from launcher.training.ranks import join, leave, read_ranks


def run(job: Path, output: Path) -> None:
    assignment = read_assignment(job, world_size=int(os.environ["WORLD_SIZE"]))
    ranks = read_ranks(os.environ, local_world_size=int(os.environ["WORLD_SIZE"]), uses_gpu=False)
    output.mkdir(parents=True, exist_ok=True)
    tracker = open_tracker(assignment.document, output=output, rank=ranks.rank, plan=assignment.plan)
    join(ranks)
    outcome = train(assignment, ranks, tracker, output=output)
    leave()
    tracker.finish("FINISHED")
    if ranks.leads:
        (output / "completed.json").write_text(json.dumps(asdict(outcome)))


def main() -> int:
    port, *pairs = sys.argv[1:]
    for number, (job, output) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        os.environ["MASTER_PORT"] = str(int(port) + number)
        print(f"job {job}", flush=True)
        run(Path(job), Path(output))
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
