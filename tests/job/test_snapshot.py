from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from launcher.job.snapshot import take_snapshot

if TYPE_CHECKING:
    from pathlib import Path


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(("git", "-C", folder, *who, *arguments), check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "train.py").write_text("print(1)")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def test_a_clean_checkout_is_its_commit(checkout: Path) -> None:
    snapshot = take_snapshot(checkout)

    assert (snapshot.root, snapshot.is_dirty) == (str(checkout), False)
    assert snapshot.commit == git(checkout, "rev-parse", "HEAD")


def test_a_changed_file_makes_it_dirty(checkout: Path) -> None:
    (checkout / "train.py").write_text("print(2)")

    assert take_snapshot(checkout).is_dirty


def test_a_file_git_does_not_track_leaves_it_clean(checkout: Path) -> None:
    (checkout / "notes.txt").write_text("")

    assert not take_snapshot(checkout).is_dirty


def test_a_folder_outside_any_checkout_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    assert take_snapshot(tmp_path).commit is None


def test_without_git_there_is_no_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    assert take_snapshot(checkout).commit is None
