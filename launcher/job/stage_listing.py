"""Which files below a folder travel with a job, and why the others do not. git reads the ignore files."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from launcher.errors import Fault, PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable

IGNORE_FILES = (".gitignore", ".amlignore")
_CREDENTIAL_FOLDERS = frozenset(
    {".git", ".ssh", ".aws", ".azure", ".azureml", ".kube", ".gnupg", ".docker", ".gcloud", ".oci", ".terraform"}
)
_CREDENTIAL_FILES = (
    ".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd",
    ".git-credentials", ".gitconfig", ".dockercfg", ".dockerconfigjson", ".s3cfg", ".boto", ".databrickscfg",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p12", "*.pfx", "*.pkcs12", "*.jks",
    "*.keystore", "*.kdbx", "*.ppk", "*.gpg", "*.ovpn", "*.tfvars", "*.tfstate", "*.tfstate.*", "kubeconfig*",
    "*credentials.json", "credentials", "*service-account*.json", "*service_account*.json", "client_secret*.json",
    "secrets.yaml", "secrets.yml", "secrets.json", "secrets.toml", "token", "*.token", ".token", "*.publishsettings",
)  # fmt: skip
_HARMLESS_FILES = (".env.example", ".env.sample", ".env.template", "example.env", "*.pub")
_CREDENTIAL_NAME, _HARMLESS_NAME = (
    re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))
    for patterns in (_CREDENTIAL_FILES, _HARMLESS_FILES)
)
_CLUTTER = frozenset(
    {
        "__pycache__", ".hydra", "outputs", "multirun", "mlruns", ".pytest_cache", ".mypy_cache", ".ruff_cache",
        ".venv", "venv", "node_modules", ".ipynb_checkpoints", ".tox", ".idea", ".vscode",
    }
)  # fmt: skip
_GIT_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What travels, what does not, and what a person should hear of it."""

    files: dict[str, Path]
    """POSIX path below the folder -> the real file to read."""
    left_out: Counter[str]
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(kw_only=True)
class _Sorting:
    """The listing while it is made."""

    root: Path
    wanted: frozenset[str]
    files: dict[str, Path] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    _folders: dict[Path, Path] = field(default_factory=dict)

    def real(self, source: Path) -> Path:
        """Where ``source`` leads; a folder is resolved once, however many files are in it."""
        folder = source.parent
        if folder not in self._folders:
            self._folders[folder] = Path(os.path.realpath(folder))
        real = self._folders[folder] / source.name
        return Path(os.path.realpath(real)) if real.is_symlink() else real


def list_files(root: Path, include: tuple[str, ...], *, without_git: bool) -> Listing:
    """The files below ``root`` (absolute, resolved) that travel.

    Args:
        root: Folder the paths are relative to.
        include: What travels although git does not track it.
        without_git: Whether, outside a checkout, files that no ignore file names travel; else only ``include`` does.
    """
    tracked = _tracked(root)
    included, faults = _included(root, include)
    candidates = frozenset(tracked if tracked is not None else _not_ignored(root) if without_git else ()) | included
    sorting = _Sorting(root=root, wanted=candidates)
    for path in sorted(candidates):
        _sort(sorting, path, is_asked_for=path in included, is_tracked=tracked is not None)
    notes = _untracked_notes(root, sorting) if tracked is not None else ()
    return Listing(files=sorting.files, left_out=sorting.left_out, faults=faults, notes=notes)


def _sort(sorting: _Sorting, path: str, *, is_asked_for: bool, is_tracked: bool) -> None:
    """Put one candidate where it belongs: it travels, or it is left out for a reason."""
    why = "named like a credential" if _is_credential(path) else None
    if why is None and _is_launchers_own(sorting.root / path):
        why = "the launcher's own runs"
    if why is None and not is_asked_for and not is_tracked and _is_clutter(path):
        why = "caches and outputs"
    source = sorting.root / path
    if why is None:
        why = _unfit(sorting, source)
    if why is None:
        sorting.files[path] = sorting.real(source)
    else:
        sorting.left_out[why] += 1


def _unfit(sorting: _Sorting, source: Path) -> str | None:
    """Why a file cannot be read as one of the tree's own; None when it can."""
    real = sorting.real(source)
    try:
        mode = real.lstat().st_mode
    except OSError:
        return "links to nothing" if source.is_symlink() else "deleted"
    if real != source:
        if not real.is_relative_to(sorting.root):
            return "links out of the tree"
        target = real.relative_to(sorting.root).as_posix()
        if target not in sorting.wanted or _is_credential(target):
            return "links to what does not travel"
    return None if stat.S_ISREG(mode) else "no regular files"


def _is_credential(path: str) -> bool:
    parts = path.lower().split("/")
    if not _CREDENTIAL_FOLDERS.isdisjoint(parts):
        return True
    return _CREDENTIAL_NAME.match(parts[-1]) is not None and _HARMLESS_NAME.match(parts[-1]) is None


def _is_launchers_own(path: Path) -> bool:
    """Whether a file lies in ``$LAUNCHER_HOME``, which changes while a job is submitted."""
    home = os.environ.get("LAUNCHER_HOME")
    return home is not None and path.is_relative_to(Path(home).expanduser().resolve())


def _is_clutter(path: str) -> bool:
    return any(part in _CLUTTER for part in PurePosixPath(path).parts) or path.endswith((".pyc", ".pyo"))


def _tracked(root: Path) -> set[str] | None:
    """Files git tracks below ``root`` and no ``.amlignore`` names; None outside a checkout."""
    tracked = _git(root, "ls-files", "-z", "--cached", "--recurse-submodules")
    if tracked is None:
        return None
    ignored = _git(root, "ls-files", "-z", "--cached", "--ignored", "--exclude-per-directory=.amlignore") or set()
    return tracked - ignored


def _not_ignored(root: Path) -> set[str]:
    """Files no ignore file names, here or in the folders above; asked of git with an empty repository beside them."""
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "git"
        subprocess.run(("git", "init", "--quiet", "--bare", str(repository)), check=True, timeout=_GIT_SECONDS)
        return set.intersection(*(_not_ignored_by(root, repository, name) for name in IGNORE_FILES))


def _not_ignored_by(root: Path, repository: Path, ignore_file: str) -> set[str]:
    above = (folder / ignore_file for folder in root.parents)
    found = _git(
        root,
        f"--git-dir={repository}",
        f"--work-tree={root}",
        "ls-files",
        "-z",
        "--others",
        f"--exclude-per-directory={ignore_file}",
        *(f"--exclude-from={path}" for path in above if path.is_file()),
        *(f"--exclude={name}/" for name in sorted(_CLUTTER)),
    )
    return found or set()


def _included(root: Path, include: Iterable[str]) -> tuple[frozenset[str], tuple[Fault, ...]]:
    """Every file below what ``entry.include`` names; a name that leads nowhere or out of the tree is a fault."""
    files: set[str] = set()
    faults: list[Fault] = []
    for name in include:
        path = root / name
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(root) or not real.exists():
            faults.append(_bad_include(name, "is not there" if not real.exists() else "leads out of the code's folder"))
        elif _is_credential(name):
            faults.append(_bad_include(name, "is named like a credential"))
        elif path.is_dir():
            files.update(found.relative_to(root).as_posix() for found in path.rglob("*") if not found.is_dir())
        else:
            files.add(PurePosixPath(name).as_posix())
    return frozenset(files), tuple(faults)


def _bad_include(name: str, why: str) -> Fault:
    return Fault(
        what=f"entry.include names {name}, which {why}",
        keys=("entry.include",),
        allowed="files and folders below the folder the job is submitted from",
        code="stage.include",
    )


def _untracked_notes(root: Path, sorting: _Sorting) -> tuple[str, ...]:
    """A new file that git does not track is easily missed: say which stay behind."""
    others = _git(root, "ls-files", "-z", "--others", "--exclude-standard") or set()
    behind = sorted(path for path in others if path not in sorting.files and not _is_credential(path))
    if not behind:
        return ()
    sorting.left_out["not tracked by git"] += len(behind)
    shown = ", ".join(behind[:3]) + (", ..." if len(behind) > 3 else "")
    return (f"{len(behind)} untracked files stay behind ({shown}): git add them, or entry.include",)


def _git(root: Path, *arguments: str) -> set[str] | None:
    """The NUL-separated paths git prints; None when ``root`` is not in a checkout."""
    command = ("git", "--no-optional-locks", "-C", str(root), *arguments)
    try:
        done = subprocess.run(command, capture_output=True, timeout=_GIT_SECONDS, check=False)
    except FileNotFoundError:
        raise PlanError("git is not installed: it says which files travel", code="stage.git") from None
    except subprocess.TimeoutExpired:
        raise PlanError(f"git took longer than {_GIT_SECONDS} s in {root}", code="stage.git") from None
    if b"not a git repository" in done.stderr:
        return None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise PlanError(
            f"git cannot list the files of {root}: {said[0] if said else done.returncode}", code="stage.git"
        )
    return {os.fsdecode(path) for path in done.stdout.split(b"\0") if path}
