"""What tests of the trainer inside this process share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist

from launcher.training.ranks import join, read_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A process group of one in this process, on as many cores as there are."""
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setenv("LAUNCHER_HOME", str(tmp_path_factory.getbasetemp() / "home"))
    threads = torch.get_num_threads()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    join(read_ranks({}, local_world_size=1, uses_gpu=False))
    yield tmp_path
    dist.destroy_process_group()
    torch.set_num_threads(threads)
