"""The journal: every submission of this machine, one file each, on disk before the submission can be forgotten.

A file is made once (O_EXCL), replaced whole, and synced; sixteen processes at once lose no row, since each writes a
file of its own. What cannot be read is moved aside, never fatal. Rows of local runs that are missing here are made
again from the runs' own folders.

States are those of the submission, not of the run: PLANNED before anything is sent, SUBMITTED once accepted, UNKNOWN
when it may or may not have been accepted (then ``launcher reconcile`` asks), REFUSED when certainly not.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from launcher.backends import backend_names, parse_handle
from launcher.errors import BackendError, NoSuchRunError
from launcher.home import home, runs_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from launcher.backends.backend import Submission
    from launcher.job.spec import JobSpec

JOURNAL_SCHEMA_VERSION = 1
SubmissionState = Literal["PLANNED", "SUBMITTED", "UNKNOWN", "REFUSED"]
LATEST = "latest"
"""Stands for the handle of the newest submission."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One submission."""

    schema_version: int = JOURNAL_SCHEMA_VERSION
    backend: str
    name: str
    state: SubmissionState
    intent: str = ""
    """The 16 digits that submissions of the same thing to the same place share; part of the name."""
    attempt: int = 1
    recipe: str = ""
    recipe_digest: str = ""
    plan_digest: str = ""
    experiment: str = ""
    url: str | None = None
    parent: str | None = None
    """Handle of the run this one continues."""
    created_at: str = field(default_factory=lambda: _now())
    """ISO 8601, UTC, with microseconds: the order of the journal."""
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    details: dict[str, str] = field(default_factory=dict)
    """What the backend wants to find again: workspace, resource group."""

    @property
    def handle(self) -> str:
        """``azureml:NAME`` or ``local:NAME``."""
        return f"{self.backend}:{self.name}"


def row_of(backend: str, job: JobSpec, *, state: SubmissionState, parent: str | None = None) -> Row:
    """The row of ``job`` before or after it is sent to ``backend``."""
    return Row(
        backend=backend,
        name=job.name,
        state=state,
        intent=job.name.removesuffix(f"-{job.attempt}").rpartition("-")[2],
        attempt=job.attempt,
        recipe=job.tags.get("recipe", ""),
        recipe_digest=job.tags.get("recipe_digest", ""),
        plan_digest=job.tags.get("plan_digest", ""),
        experiment=job.experiment,
        parent=parent,
    )


def accepted(submission: Submission, job: JobSpec, *, parent: str | None = None) -> Row:
    """The row of a submission the backend has accepted."""
    backend, name = parse_handle(submission.handle)
    attempt = name.rpartition("-")[2]
    row = row_of(backend, job, state="SUBMITTED", parent=parent)
    return replace(row, name=name, attempt=int(attempt) if attempt.isdecimal() else job.attempt, url=submission.url)


def record(row: Row) -> bool:
    """Put a new row on disk; False, and nothing changed, if there is one of this handle already.

    Raises:
        BackendError: the row cannot be made durable; then nothing may be submitted.
    """
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        beside = _written_beside(row)
        try:
            # A link is made whole or not at all, and never over another: what O_EXCL does, with the content in it.
            os.link(beside, _path(row.handle))
        except FileExistsError:
            return False
        finally:
            beside.unlink()
        _sync_folder()
    except OSError as error:
        raise _not_durable(error) from error
    return True


def update(row: Row, **changes: Any) -> Row:
    """Replace the row of this handle by one with ``changes``, and return it."""
    changed = replace(row, **changes)
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        _written_beside(changed).replace(_path(changed.handle))
        _sync_folder()
    except OSError as error:
        raise _not_durable(error) from error
    return changed


@contextmanager
def held(handle: str) -> Iterator[None]:
    """One process at a time for this handle, on this machine; a dead holder holds nothing."""
    folder = _folder() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _path(handle).stem).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def rows() -> tuple[Row, ...]:
    """Every submission known here, newest first."""
    journaled = {row.handle: row for path in _folder().glob("*.json") if (row := _read(path)) is not None}
    found = {row.handle: row for row in _from_run_folders(set(journaled))}
    return tuple(sorted((found | journaled).values(), key=lambda row: row.created_at, reverse=True))


def find(text: str) -> Row:
    """The row of a handle, of a unique beginning of a handle or name, or of ``latest``.

    Raises:
        NoSuchRunError: none, or more than one.
    """
    if (row := _of_handle(text)) is not None:
        return row
    known = rows()
    if text == LATEST and known:
        return known[0]
    exact = [row for row in known if text in (row.handle, row.name)]
    near = exact or [row for row in known if text and (row.handle.startswith(text) or row.name.startswith(text))]
    if len(near) == 1:
        return near[0]
    raise _not_one(text, near, known)


def resolve(text: str) -> str:
    """The handle meant by ``text``: a handle as it is (a colleague's run is in no journal of ours), else ``find``."""
    backend, _, name = text.partition(":")
    known = {row.handle for row in rows()}
    if text in known or (backend in backend_names() and name and not any(handle.startswith(text) for handle in known)):
        return text
    return find(text).handle


def _folder() -> Path:
    return home() / "journal"


def _of_handle(text: str) -> Row | None:
    """The row of a whole handle, without reading the others."""
    backend, _, name = text.partition(":")
    return _read(_path(text)) if backend in backend_names() and re.fullmatch(r"[\w-]+", name) else None


def _path(handle: str) -> Path:
    return _folder() / f"{handle.replace(':', '-', 1)}.json"


def _written_beside(row: Row) -> Path:
    beside = _folder() / f".{os.getpid()}-{os.urandom(4).hex()}"
    with beside.open("x", encoding="utf-8") as file:
        json.dump(asdict(row), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    return beside


def _sync_folder() -> None:
    descriptor = os.open(_folder(), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path) -> Row | None:
    """The row in ``path``; one of a newer launcher is left alone, one that is broken is moved aside."""
    try:
        values = json.loads(path.read_bytes())
        if values["schema_version"] > JOURNAL_SCHEMA_VERSION:
            return None
        row = Row(**{item.name: values[item.name] for item in fields(Row) if item.name in values})
        if path != _path(row.handle) or row.state not in get_args(SubmissionState):
            raise ValueError(f"{path} holds the row of {row.handle}, {row.state}")
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        _move_aside(path)
        return None
    return row


def _move_aside(path: Path) -> None:
    aside = _folder() / "corrupt"
    with suppress(OSError):
        aside.mkdir(exist_ok=True)
        path.replace(aside / f"{path.name}.{_now()}")


def _from_run_folders(known: set[str]) -> Iterator[Row]:
    """Rows of local runs the journal has lost, or has not got yet."""
    for launch in runs_folder().glob("*/launch.json"):
        folder = launch.parent
        if f"local:{folder.name}" not in known:
            made = datetime.fromtimestamp(launch.stat().st_mtime, UTC).isoformat(timespec="microseconds")
            attempt = re.search(r"-(\d+)$", folder.name)
            yield Row(
                backend="local",
                name=folder.name,
                state="SUBMITTED",
                attempt=int(attempt[1]) if attempt else 1,
                url=folder.as_uri(),
                created_at=made,
            )


def _not_one(text: str, near: list[Row], known: tuple[Row, ...]) -> NoSuchRunError:
    if near:
        names = ", ".join(row.handle for row in near[:5])
        return NoSuchRunError(f"{text!r} may be {len(near)} runs", allowed=names, code="no_such_run.ambiguous")
    what = f"no run {text!r} in {_folder()}" if known else f"no run {text!r}: nothing was submitted from here yet"
    return NoSuchRunError(what, suggestion="launcher list", code="no_such_run")


def _not_durable(error: OSError) -> BackendError:
    return BackendError(
        f"the journal cannot be written in {_folder()}: {error.strerror}",
        suggestion="free some space, or set LAUNCHER_HOME to a folder you can write",
        code="backend.journal",
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
