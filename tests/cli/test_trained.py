"""``launcher export``, ``generate`` and ``evaluate``: the weights a real run has left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from launcher.backends.local.backend import run_folder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

TINY = (
    "gpt/tiny", "training.train_steps=3", "training.seq_length=32", "model.hidden_size=32", "model.num_hidden_layers=1",
    "training.evaluation_batches=1", "data.tokenizer=bytes", "model.vocab_size=257", "tracking.enabled=false",
)  # fmt: skip


@pytest.fixture
def handle(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of three steps."""
    monkeypatch.chdir(tmp_path)
    assert cli("submit", *TINY, "--follow").code == 0
    found: str = cli("list", "--json").document["runs"][0]["handle"]
    return found


def test_a_run_is_exported_looked_at_and_measured(cli: Cli, handle: str, tmp_path: Path) -> None:
    said = cli("generate", handle, "The ", "--tokens", "5", "--json").document
    assert said["text"].startswith("The ")
    assert said["step"] == 3

    (corpus,) = cli("evaluate", handle, "--json").document["corpora"]
    assert corpus["corpus"] == "demo"
    assert corpus["perplexity"] == pytest.approx(2.718281828 ** corpus["loss"], rel=1e-6)
    outcome = cli("evaluate", handle, "--batches", "1")
    assert outcome.out.splitlines()[0] == f"{handle} after step 3"
    assert "perplexity" in outcome.out

    exported = cli("export", handle, "--dtype", "fp32", "--json").document
    folder = tmp_path / exported["folder"]
    assert exported["folder"] == f"{handle.removeprefix('local:')}-huggingface"
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert sum(parameter.numel() for parameter in model.parameters()) * 4 < exported["bytes"]

    checkpoints = run_folder(handle).output / "checkpoints"
    same = cli("generate", checkpoints, "The ", "--tokens", "5", "--json").document
    assert same["text"] == said["text"]


def test_a_folder_with_something_in_it_is_not_written_to(cli: Cli, handle: str, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    outcome = cli("export", handle, "--to", tmp_path / "full")
    assert outcome.code == 2
    assert "is there already" in outcome.err
    adapters = cli("export", handle, "--format", "peft", "--to", tmp_path / "adapters")
    assert adapters.code == 1
    assert "no adapters" in adapters.err
    assert not (tmp_path / "adapters").exists()


def test_a_run_that_is_nowhere_is_named(cli: Cli) -> None:
    for words in (("export", "local:nobody"), ("evaluate", "local:nobody"), ("generate", "local:nobody", "The")):
        assert cli(*words).code == 6
