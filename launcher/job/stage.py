"""The code that travels with a job: which files, why not others, and what they are together.

Inside a git checkout: the files git tracks below the folder, minus what ``.amlignore`` names, plus what the recipe
includes. Outside one: files that no ignore file (``.gitignore`` *and* ``.amlignore``, here and above) names; Azure ML's
own SDK lets ``.amlignore`` replace ``.gitignore`` and follows links out of the tree, which is how keys get uploaded.
Files named like credentials never travel, and a secret in a file's text stops the submission.

Every file is read once: what is scanned, what the digest names and what is uploaded are the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import launcher
from launcher.errors import Fault, PlanError
from launcher.job import stage_listing
from launcher.job.secret_scan import find_secrets, forms_in
from launcher.job.stage_diff import uncommitted_diff
from launcher.units import MIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from launcher.job.secret_scan import Form, Secret
    from launcher.job.stage_listing import Listing
    from launcher.recipe.schema import Entry

LARGEST_TOTAL_BYTES = 300 * MIB
"""Azure ML: 300 MB and 2,000 files for a code snapshot (azure-ai-docs how-to-save-write-experiment-files.md, v1)."""
LARGEST_FILE_COUNT = 20_000
MANY_FILES = 2_000
DIFF_FILE = "launcher_uncommitted.diff"
_NOT_NEEDED_IN_A_JOB = frozenset({"__pycache__", "_recipes", "_environments", "cli", "compose", "emulator"})
_LARGEST_SCANNED_BYTES = 5 * MIB
"""Longer text is data, not code; it still counts against the total."""


@dataclass(frozen=True, kw_only=True)
class StagedFile:
    """One file that travels."""

    path: str
    """POSIX, relative to the folder the job runs in."""
    content: bytes
    digest: str
    """SHA-256, 64 hex digits."""
    is_executable: bool = False


@dataclass(frozen=True, kw_only=True)
class Staged:
    """The code of a job, ready to be sent."""

    files: tuple[StagedFile, ...]
    """Sorted by path."""
    digest: str
    """Content address: SHA-256 over every path, mode and content."""
    left_out: dict[str, int]
    """Why -> how many files do not travel."""
    notes: tuple[str, ...] = ()
    """What a person should know: untracked files, links that were followed."""

    @property
    def total_bytes(self) -> int:
        """Of all contents."""
        return sum(len(file.content) for file in self.files)

    def largest(self, most: int = 3) -> tuple[StagedFile, ...]:
        """The biggest files, biggest first."""
        return tuple(sorted(self.files, key=lambda file: -len(file.content))[:most])


def stage(
    root: Path,
    *,
    include: Iterable[str] = (),
    without_git: bool = True,
    generated: Mapping[str, bytes] | None = None,
    allowed_secrets: frozenset[str] = frozenset(),
) -> Staged:
    """The files below ``root`` that travel, read, scanned and named.

    Args:
        root: Folder the job's paths are relative to.
        include: Files and folders below ``root`` that travel although git does not track them.
        without_git: Whether a folder outside any checkout travels too.
        generated: Files made by the launcher: path -> content; they win over the tree's.
        allowed_secrets: Digests of finds that a person has looked at and allowed.

    Raises:
        PlanError: a secret was found (file and line, never the secret), or a limit is passed; all faults at once.
    """
    listing = stage_listing.list_files(root.resolve(), tuple(include), without_git=without_git)
    files = {path: _read(source, path) for path, source in sorted(listing.files.items())}
    made = {path: _file(path, content) for path, content in (generated or {}).items()}
    staged = tuple(file for _, file in sorted((files | made).items()))
    faults = (*_secret_faults(staged, allowed_secrets), *_limit_faults(staged), *listing.faults)
    if faults:
        raise PlanError(faults)
    return Staged(files=staged, digest=_digest(staged), left_out=dict(listing.left_out), notes=_notes(listing, staged))


def stage_code(root: Path, entry: Entry, *, allowed_secrets: frozenset[str] = frozenset()) -> Staged:
    """What a recipe's code is: the folder it is submitted from, this launcher, and what was changed since the commit.

    The launcher travels as it is here, so that the job makes the very plan that was shown. Outside a checkout, and with
    the built-in trainer, nothing but the launcher is needed.
    """
    generated = _own_package(root.resolve()) | _uncommitted(root)
    staged = stage(
        root,
        include=entry.include,
        without_git=entry.script is not None,
        generated=generated,
        allowed_secrets=allowed_secrets,
    )
    _require_script(entry, staged)
    return staged


def write(staged: Staged, folder: Path) -> None:
    """Put the staged files into ``folder``, which must not exist."""
    folder.mkdir(parents=True)
    for file in staged.files:
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        if file.is_executable:
            target.chmod(0o755)


def preview(staged: Staged) -> str:
    """One line: ``412 files, 3.1 MiB, content 9ac1...; 1,204 left out (...); largest a.bin 2.0 MiB``."""
    left_out = ", ".join(f"{count:,} {why}" for why, count in Counter(staged.left_out).most_common())
    largest = ", ".join(f"{file.path} {format_bytes(len(file.content))}" for file in staged.largest(1))
    parts = [
        f"{len(staged.files):,} files, {format_bytes(staged.total_bytes)}, content {staged.digest[:12]}",
        f"{sum(staged.left_out.values()):,} left out ({left_out})" if left_out else "",
        f"largest {largest}" if largest else "",
    ]
    return "; ".join(part for part in parts if part)


def _read(source: Path, path: str) -> StagedFile:
    """One read of a regular file; a link in its last part would have been resolved by the listing."""
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        mode = os.fstat(descriptor).st_mode
        return _file(path, stream.read(), is_executable=bool(mode & stat.S_IXUSR))


def _file(path: str, content: bytes, *, is_executable: bool = False) -> StagedFile:
    digest = hashlib.sha256(content).hexdigest()
    return StagedFile(path=path, content=content, digest=digest, is_executable=is_executable)


def _digest(files: tuple[StagedFile, ...]) -> str:
    lines = "".join(f"{file.digest} {file.is_executable:d} {file.path}\n" for file in files)
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def _secret_faults(files: tuple[StagedFile, ...], allowed: frozenset[str]) -> Iterator[Fault]:
    scanned = [file for file in files if _is_text(file)]
    forms = forms_in(b"\n".join(file.content for file in scanned))
    for file in scanned:
        by_line = {secret.line: secret for secret in _secrets(file, forms) if secret.digest not in allowed}
        for secret in by_line.values():
            yield Fault(
                what=f"{file.path} holds what looks like a secret: {secret.kind}",
                where=f"{file.path}:{secret.line}",
                suggestion=f"take it out of the file, or --allow-secret {secret.digest} if it is none",
                code="stage.secret",
            )


@lru_cache(maxsize=1024)
def _secrets(file: StagedFile, forms: tuple[Form, ...]) -> tuple[Secret, ...]:
    """Kept, since one process stages the same code again: to name the job, to send it, to send its next attempt."""
    return tuple(find_secrets(file.content, forms))


def _is_text(file: StagedFile) -> bool:
    return len(file.content) <= _LARGEST_SCANNED_BYTES and b"\0" not in file.content[:8192]


def _limit_faults(files: tuple[StagedFile, ...]) -> Iterator[Fault]:
    total = sum(len(file.content) for file in files)
    if total > LARGEST_TOTAL_BYTES or len(files) > LARGEST_FILE_COUNT:
        largest = sorted(files, key=lambda file: -len(file.content))[:3]
        yield Fault(
            what=f"the code is {format_bytes(total)} in {len(files):,} files",
            allowed=f"{format_bytes(LARGEST_TOTAL_BYTES)} in {LARGEST_FILE_COUNT:,} files",
            suggestion="name data and checkpoints in .amlignore; the largest are "
            + ", ".join(f"{file.path} ({format_bytes(len(file.content))})" for file in largest),
            code="stage.size",
        )


def _notes(listing: Listing, files: tuple[StagedFile, ...]) -> tuple[str, ...]:
    many = (
        (f"{len(files):,} files: above {MANY_FILES:,} every node is slow to start",) if len(files) > MANY_FILES else ()
    )
    return (*listing.notes, *many)


def _own_package(root: Path) -> dict[str, bytes]:
    """This launcher's own files, as they are imported now."""
    package = Path(launcher.__file__).resolve().parent
    theirs = root / package.name
    if (theirs / "__init__.py").is_file() and theirs.resolve() != package:
        raise PlanError(
            f"the folder {theirs} would hide the launcher's own package inside the job",
            suggestion=f"rename it, or submit from a folder without {package.name}/",
            code="stage.package",
        )
    return {
        path.relative_to(package.parent).as_posix(): path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.is_file() and not _NOT_NEEDED_IN_A_JOB.intersection(path.relative_to(package).parts)
    }


def _uncommitted(root: Path) -> dict[str, bytes]:
    """The diff to the commit, so that a run of a changed tree can be told apart from one of the commit."""
    diff = uncommitted_diff(root)
    return {DIFF_FILE: diff} if diff else {}


def _require_script(entry: Entry, staged: Staged) -> None:
    """A script that stays behind is found here, not by a node that was paid for."""
    script = entry.script
    if (
        script is None
        or not script.endswith(".py")
        or any(file.path == str(PurePosixPath(script)) for file in staged.files)
    ):
        return
    raise PlanError(
        f"entry.script {script} does not travel with the job",
        keys=("entry.script",),
        allowed="a file git tracks, relative to the folder the job is submitted from, or one that entry.include names",
        suggestion=f"git add {script}",
        code="stage.script",
    )
