from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from launcher.training.data.cache import cached_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.recipe.schema import Recipe

OPEN = """
import pickle, sys
from pathlib import Path
from launcher.training.data import library
from launcher.training.data.corpus import open_corpora

recipe, cache, log = pickle.loads(bytes.fromhex(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3])
prepare = library.prepare
def logged(*args, **keywords):
    with log.open("a") as file:
        file.write("prepared\\n")
    return prepare(*args, **keywords)
library.prepare = logged
sys.stdin.readline()  # so that all begin at once
corpora = open_corpora(recipe, cache=cache)
print(corpora.digest, corpora.train.batch(range(4)).sum())
"""


def test_processes_that_open_a_corpus_at_once_prepare_it_once(
    make_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    import pickle

    recipe = pickle.dumps(make_recipe(tokenizer="bpe", vocab_size=400, seq_length=64)).hex()
    log = tmp_path / "log"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, recipe, str(tmp_path / "cache"), str(log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    answers = {process.communicate("go\n", timeout=60)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(answers) == 1
    assert log.read_text() == "prepared\n"


KILLED = """
import os, signal, sys
from pathlib import Path
from launcher.training.data.cache import cached_folder

def make(folder):
    (folder / "half").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)

cached_folder(Path(sys.argv[1]), {"name": "x"}, make)
"""


def test_a_process_killed_while_preparing_leaves_nothing_that_another_would_take_for_whole(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL

    def make(folder: Path) -> None:
        (folder / "whole").write_text("whole")

    folder = cached_folder(tmp_path, {"name": "x"}, make)
    assert [path.name for path in folder.iterdir()] == ["whole"]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [folder.name]


def test_what_fails_is_made_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cached_folder(tmp_path, {"name": "x"}, fail)
    assert cached_folder(tmp_path, {"name": "x"}, lambda folder: None).is_dir()


def test_other_settings_are_another_folder(tmp_path: Path) -> None:
    folders = {cached_folder(tmp_path, {"name": name}, lambda folder: None) for name in "aab"}
    assert len(folders) == 2
