"""``python -m launcher.training job.json --output DIR``: what each rank of a job runs."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import ExitCode, LauncherError
from launcher.job.mounted import parse_mounts

if TYPE_CHECKING:
    from launcher.training.loop import Outcome

COMPLETED = "completed.json"
"""The run's own word that it completed; written by rank 0 once all work is done and saved."""


def main() -> int:
    """Train as the job says; returns the exit code."""
    arguments = _parser().parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        return _run(arguments.job, arguments.output, parse_mounts(arguments.mount))
    except LauncherError as error:
        _print_faults(error)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m launcher.training", description="Run one rank of a job.")
    parser.add_argument("job", type=Path, help="job.json")
    parser.add_argument("--output", type=Path, required=True, help="folder of metrics, checkpoints and the record")
    parser.add_argument("--mount", action="append", default=[], metavar="URI=PATH", help="where remote data lies here")
    return parser


def _run(job: Path, output: Path, mounts: dict[str, str]) -> int:
    from launcher.training.assignment import read_assignment

    # The plan is compared before torch is imported: a wrong job ends in a fraction of a second.
    assignment = read_assignment(job, world_size=int(os.environ.get("WORLD_SIZE", "1")), mounts=mounts)
    from launcher.catalog.vm_sizes import find
    from launcher.tracking.tracker import open_tracker
    from launcher.training.ranks import join, leave, read_ranks, share_cores

    topology = assignment.plan.topology
    uses_gpu = find(assignment.recipe.cluster.instance_type).gpus > 0
    ranks = read_ranks(os.environ, local_world_size=topology.processes_per_node, uses_gpu=uses_gpu)
    share_cores(ranks)
    output.mkdir(parents=True, exist_ok=True)
    tracker = open_tracker(
        assignment.document, output=output, rank=ranks.rank, plan=assignment.plan,
        node=ranks.rank // topology.processes_per_node, local_rank=ranks.local_rank,
    )  # fmt: skip
    try:
        join(ranks)
        from launcher.training.loop import train

        outcome = train(assignment, ranks, tracker, output=output)
        leave()
    except BaseException:
        tracker.finish("FAILED")
        raise
    if outcome.exit_code == 0 and ranks.leads:
        _write_record(output, outcome)
    tracker.finish("FINISHED" if outcome.exit_code == 0 else "KILLED")
    return outcome.exit_code


def _write_record(output: Path, outcome: Outcome) -> None:
    from launcher.training.checkpoint.storage import write_text

    write_text(output / COMPLETED, json.dumps(asdict(outcome), indent=2) + "\n")


def _print_faults(error: LauncherError) -> None:
    for fault in error.faults:
        sys.stderr.write(f"error: {fault.what}\n")
        parts = {"where": ", ".join(fault.keys), "allowed": fault.allowed, "try": fault.suggestion}
        for name, text in parts.items():
            if text:
                sys.stderr.write(f"  {name:<8} {text}\n")


def _end(code: int) -> None:
    """End the process with our own word.

    The interpreter's orderly end may abort (SIGABRT in gloo's threads) after all work is done and recorded, which
    would make a good run look like a crash; so once everything is flushed, the process ends here.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # nobody reads any more
            continue
    os._exit(code)


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        code = int(ExitCode.INTERRUPTED)
    except SystemExit as end:  # argparse: help was asked for, or the arguments are wrong
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        code = int(ExitCode.RUN_FAILED)
    _end(code)
