"""Runs of the built-in trainer on real ranks: gloo, checkpoints, and what a kill leaves behind."""

from __future__ import annotations

import json
import os
import signal
import time
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher.backends.local.backend import run_folder
from launcher.backends.local.state import read_state
from launcher.job.build import build_job
from launcher.job.snapshot import take_snapshot
from launcher.plan.planner import make_plan
from launcher.recipe import codec
from launcher.runs import watch
from launcher.runs.checkpoints import Shelf, resolve_resume
from launcher.tracking.spool import read_rows
from tests.backends.conftest import left_running, rank_pid

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.backends.local.backend import LocalBackend
    from launcher.job.spec import JobSpec

pytest.importorskip("torch")


def tiny(*, resume_from: str | None = None, max_restarts: int = 0, steps: int = 40) -> JobSpec:
    """Two CPU ranks, a model of a few thousand parameters, a checkpoint every 10 steps."""
    asked: dict[str, Any] = {
        "name": "tiny",
        "model": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 257},
        "training": {"seq_length": 32, "global_batch_size": 4, "train_steps": steps, "precision": "fp32"},
        "data": {"train": ["demo"], "tokenizer": "bytes"},
        "cluster": {"processes_per_instance": 2},
        "checkpoint": {"interval_steps": 10},
        "tracking": {"enabled": False, "system_metrics": False},
        "limits": {"max_restarts": max_restarts},
    }
    recipe = codec.decode(asked)
    return build_job(recipe, make_plan(recipe), take_snapshot(Path.cwd()), resume_from=resume_from)


def wait_until(met: Callable[[], bool], handle: str, backend: LocalBackend) -> None:
    """Return once ``met``; fail if the run ends before."""
    deadline = time.monotonic() + 60
    while not met():
        status = backend.status(handle)
        assert not status.is_terminal, (status, list(backend.logs(handle)))
        assert time.monotonic() < deadline
        time.sleep(0.005)


def kill_rank_after_checkpoint(handle: str, backend: LocalBackend, *, rank: int, step: int) -> None:
    """Kill -9 one rank as soon as the checkpoint of ``step`` is there."""
    shelf = Shelf(run_folder(handle))
    wait_until(lambda: (newest := shelf.newest()) is not None and newest.step >= step, handle, backend)
    os.kill(rank_pid(handle, rank), signal.SIGKILL)


def losses(handle: str) -> list[float]:
    return [row.metrics["loss"] for row in read_rows(run_folder(handle).metrics) if "loss" in row.metrics]


def test_a_killed_rank_restarts_all_from_the_newest_checkpoint(backend: LocalBackend) -> None:
    # Case A15: a first process killed after the save of step 30, the second one goes on from there and not from 0.
    handle = backend.submit(tiny(max_restarts=1)).handle

    kill_rank_after_checkpoint(handle, backend, rank=1, step=30)
    status = watch.wait(handle, timeout_seconds=120)

    assert status.state == "Completed", list(backend.logs(handle))
    assert read_state(run_folder(handle).state).restarts == 1
    assert any("resumed after step 30" in line for line in backend.logs(handle, rank=0))
    assert json.loads(run_folder(handle).completed.read_text())["step"] == 40
    assert left_running(handle) == ()


def test_a_killed_run_is_continued_by_the_next_one_as_if_unbroken(backend: LocalBackend) -> None:
    # Both at once, so that their rendezvous would meet if the port were fixed (case L01).
    whole, broken = (backend.submit(tiny()).handle for _ in range(2))
    kill_rank_after_checkpoint(broken, backend, rank=0, step=10)
    assert watch.wait(broken, timeout_seconds=60).state == "Failed"
    assert left_running(broken) == ()

    continued = backend.submit(tiny(resume_from=resolve_resume(broken))).handle

    assert [watch.wait(handle, timeout_seconds=120).state for handle in (whole, continued)] == ["Completed"] * 2
    assert losses(continued)[-1] == losses(whole)[-1]


def test_a_cancelled_run_saves_where_it_was_and_what_was_planned(backend: LocalBackend) -> None:
    from launcher.training.safetensors_file import read_header

    handle = backend.submit(tiny(steps=100_000)).handle
    wait_until(lambda: len(losses(handle)) > 2, handle, backend)

    status = backend.cancel(handle)

    saved = Shelf(run_folder(handle)).newest()
    assert (status.state, left_running(handle)) == ("Canceled", ())
    assert saved is not None
    assert saved.step == len(losses(handle))
    tensors = [tensor for file in saved.path.glob("*.safetensors") for tensor in read_header(file)[0].values()]
    planned = json.loads(run_folder(handle).plan.read_text())["storage"]["bytes_per_checkpoint"]
    assert sum(4 * prod(tensor.shape) for tensor in tensors) == planned
