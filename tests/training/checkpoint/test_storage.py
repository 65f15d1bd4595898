"""Files on a device that fails now and then (case K05)."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher.training.checkpoint import storage
from launcher.training.checkpoint.storage import write_text, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "FIRST_PAUSE_SECONDS", 0.0)


def failing(function: Callable[..., Any], *, times: int, number: int) -> Callable[..., Any]:
    """``function``, failing with errno ``number`` the first ``times`` times."""
    left = times

    def call(*arguments: Any, **settings: Any) -> Any:
        nonlocal left
        if left:
            left -= 1
            raise OSError(number, os.strerror(number))
        return function(*arguments, **settings)

    return call


def test_a_file_is_named_by_its_size_and_digest(tmp_path: Path) -> None:
    written = write_whole(tmp_path / "a", lambda: [b"one", b"two"])
    assert (tmp_path / "a").read_bytes() == b"onetwo"
    assert (written.bytes, written.sha256) == (6, hashlib.sha256(b"onetwo").hexdigest())


def test_k05_a_rename_that_fails_once_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "latest", "old")
    monkeypatch.setattr(os, "replace", failing(os.replace, times=1, number=errno.EIO))
    write_text(tmp_path / "latest", "new")
    assert (tmp_path / "latest").read_text() == "new"


def test_k05_a_close_that_fails_once_writes_the_file_again_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", failing(os.fsync, times=1, number=errno.EIO))
    write_whole(tmp_path / "a", lambda: [b"whole"])
    assert (tmp_path / "a").read_bytes() == b"whole"


def test_k05_a_device_that_keeps_failing_leaves_the_file_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "latest", "old")
    monkeypatch.setattr(os, "replace", failing(os.replace, times=99, number=errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        write_text(tmp_path / "latest", "new")
    assert (tmp_path / "latest").read_text() == "old"


def test_k05_nothing_is_ever_appended_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    real = Path.open

    def watch(path: Path, mode: str = "r", *arguments: Any, **settings: Any) -> Any:
        modes.append(mode)
        return real(path, mode, *arguments, **settings)

    monkeypatch.setattr(Path, "open", watch)
    write_text(tmp_path / "a", "text")
    write_whole(tmp_path / "b", lambda: [b"bytes"])
    assert modes == ["wb", "wb"]


def test_a_full_disk_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", failing(os.fsync, times=1, number=errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "a", lambda: [b"x"])
