"""Files that are there whole or not at all, on a disk or on a mounted blob container.

A blob mount cannot append, may fail a rename or a close once, and shows a file's size only after it is closed. So
every file is written once, front to back, under a new name, is measured afterwards, and is written again from the
beginning when the device failed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Result = TypeVar("Result")

ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.2
"""Doubled after every failure: 0.2 + 0.4 + 0.8 + 1.6 = 3 s in all."""
PASSING = frozenset({errno.EIO, errno.EAGAIN, errno.EBUSY, errno.ETIMEDOUT, errno.ESTALE})
"""Errors of a device that may work the next time; a full disk (ENOSPC) is not one."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """A file as it was meant to be."""

    name: str
    bytes: int
    sha256: str


def write_whole(path: Path, make_chunks: Callable[[], Iterable[bytes | memoryview]]) -> Written:
    """Write a new file from the chunks ``make_chunks`` yields, down to the device, and measure it.

    Raises:
        OSError: the device kept failing, or is full.
    """
    return _patiently(lambda: _write_once(path, make_chunks()))


def write_text(path: Path, text: str) -> Written:
    """Write a small new file, or replace one by a single rename: readers see the old text or the new."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    written = write_whole(beside, lambda: [text.encode()])
    _patiently(lambda: beside.replace(path))
    _sync_folder(path.parent)
    return written


def sha256(path: Path) -> str:
    """Digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_once(path: Path, chunks: Iterable[bytes | memoryview]) -> Written:
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
        file.flush()
        os.fsync(file.fileno())
    if path.stat().st_size != size:
        raise OSError(errno.EIO, f"{path.stat().st_size} of {size} bytes arrived", str(path))
    return Written(name=path.name, bytes=size, sha256=digest.hexdigest())


def _patiently(act: Callable[[], Result]) -> Result:
    """``act``, tried again with growing pauses while the device fails in a passing way."""
    for attempt in range(ATTEMPTS - 1):
        try:
            return act()
        except OSError as error:
            if error.errno not in PASSING:
                raise
            time.sleep(FIRST_PAUSE_SECONDS * 2**attempt)
    return act()


def _sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` last; file systems that cannot are none the worse."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # no such notion here (a blob mount may refuse to open a folder)
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EBADF):
            raise
    finally:
        os.close(descriptor)
