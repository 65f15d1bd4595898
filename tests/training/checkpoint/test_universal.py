"""A checkpoint of DeepSpeed's own, converted to its universal form, is read as ours are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from launcher.recipe import codec
from launcher.training.checkpoint.restore import fill
from launcher.training.checkpoint.universal import open_universal, universal_step
from launcher.training.checkpoint.universal_folder import find_universal
from launcher.training.pieces import Piece, whole
from tests.training.layouts import FSDP, laid_out
from tests.training.runs import rank_environments, train


@pytest.mark.slow
def test_what_deepspeed_saved_goes_on_here_in_another_layout(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    recipe = laid_out(FSDP["tensor-pipeline"], "fsdp", training={"train_steps": 5, "schedule": {"name": "constant"}})
    (tmp_path / "recipe.json").write_text(json.dumps(codec.encode(recipe)))
    script = Path(__file__).with_name("deepspeed_save.py")
    command = [sys.executable, str(script), str(tmp_path / "recipe.json"), str(tmp_path / "theirs")]
    (environment,) = rank_environments(1, tmp_path)
    subprocess.run(command, env=environment, check=True, timeout=200)

    folder = find_universal(tmp_path / "theirs")
    assert folder == tmp_path / "theirs" / "s3_universal"
    assert universal_step(folder) == 3
    truth = torch.load(tmp_path / "theirs" / "truth.pt", weights_only=True)
    shelf = open_universal(folder)
    for name, kinds in truth.items():
        for kind, expected in kinds.items():
            found = torch.empty(expected.shape)
            fill([Piece(name=name, kind=kind, region=whole(tuple(expected.shape)), tensor=found)], shelf)
            assert torch.equal(found, expected), (name, kind)

    resumed = train(recipe, tmp_path / "ours", resume_from=tmp_path / "theirs")
    assert "resumed after step 3 from DeepSpeed's universal" in resumed.logs[0]
    assert len(resumed.losses) == 2
