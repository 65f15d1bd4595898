"""Datastores as folders: what a mount shows a job, and how what the job leaves gets back into blobs."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

from launcher.emulator.workspace import ARTIFACT_DATASTORE, CONTAINERS

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.emulator.blobs import Blobs
    from launcher.emulator.workspace import Job, Workspace

_DATASTORE = re.compile(r"(?i)datastores/([^/]+)/paths/(.*)")
_ASSET = re.compile(r"(?i)/(data|models)/([^/]+)/(versions|labels)/([^/]+)")
_BLOB = re.compile(r"https://[^/]+/([^/]+)/(.*)")
SMALL_BYTES = 1 << 20


class NotThereError(Exception):
    """A path that leads to no data; what Azure ML would say of it."""


class Mounts:
    """The storage of the workspace below one folder: a file for every blob a job has asked for."""

    def __init__(self, workspace: Workspace, blobs: Blobs, folder: Path) -> None:
        self._workspace = workspace
        self._blobs = blobs
        self._folder = folder
        self._lock = threading.Lock()
        self._seen: dict[Path, tuple[int, int]] = {}
        """File -> (modified, size) when it last equalled its blob."""

    def place(self, uri: str) -> tuple[str, str]:
        """Container and path of ``azureml://datastores/...``, of a data asset's id, or of a blob's address.

        Raises:
            NotThereError: it is none of these, or there is no such asset or datastore.
        """
        datastore = _DATASTORE.search(uri)
        if datastore:
            container = CONTAINERS.get(datastore[1].lower())
            if container is None:
                raise NotThereError(f"DataAccessError(NotFound): no datastore {datastore[1]}")
            return container, datastore[2].strip("/")
        asset = _ASSET.search(uri)
        if asset:
            return self.place(self._asset_uri(*asset.groups()))
        blob = _BLOB.fullmatch(uri)
        if blob:
            return blob[1], blob[2].strip("/")
        raise NotThereError(f"DataAccessError(NotFound): {uri}")

    def show(self, uri: str, *, must_exist: bool = True) -> Path:
        """The local path of ``uri``, with what lies in storage under it; read and written it is one with the mount.

        Raises:
            NotThereError: nothing lies there.
        """
        container, path = self.place(uri)
        local = self._folder / container / path
        names = [name for name in self._blobs.names(container, path) if name == path or name.startswith(f"{path}/")]
        if must_exist and not names:
            raise NotThereError(f"DataAccessError(NotFound): {uri}")
        for name in names:
            self._fetch(container, name)
        if not local.exists():
            local.mkdir(parents=True)
        return local

    def download(self, container: str, prefix: str, folder: Path) -> int:
        """Copy the blobs below ``prefix`` into ``folder``; how many there were."""
        names = list(self._blobs.names(container, prefix))
        for name in names:
            target = folder / name.removeprefix(prefix).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self._blobs.get(container, name) or b"")
        return len(names)

    def flush(self, uri: str, *, only_small: bool = False) -> None:
        """Write what changed below ``uri`` into blobs, and delete blobs whose file is gone."""
        container, path = self.place(uri)
        local, root = self._folder / container / path, self._folder / container
        files = [file for file in local.rglob("*") if file.is_file()] if local.is_dir() else []
        for file in files:
            self._store(container, root, file, only_small=only_small)
        if not only_small:
            kept = {file.relative_to(root).as_posix() for file in files}
            for name in self._blobs.names(container, f"{path}/"):
                if name not in kept:
                    self._blobs.delete(container, name)

    def store_log(self, job: Job, path: str, content: bytes) -> None:
        """Put a log of the run where run history finds it."""
        blob = f"ExperimentRun/dcid.{job.name}/{path}"
        self._blobs.put(CONTAINERS[ARTIFACT_DATASTORE], blob, content)
        with self._workspace.lock:
            job.logs[path] = blob

    def store_artifacts(self, job: Job, folder: Path, prefix: str) -> None:
        """Upload a folder the job wrote to (``./outputs``) as artifacts of the run."""
        for file in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if file.is_file():
                name = f"ExperimentRun/dcid.{job.name}/{prefix}/{file.relative_to(folder).as_posix()}"
                self._blobs.put(CONTAINERS[ARTIFACT_DATASTORE], name, file.read_bytes())

    def _fetch(self, container: str, name: str) -> None:
        file = self._folder / container / name
        with self._lock:
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(self._blobs.get(container, name) or b"")
                self._seen[file] = _stamp(file)

    def _store(self, container: str, root: Path, file: Path, *, only_small: bool) -> None:
        try:
            stamp = _stamp(file)
            if stamp == self._seen.get(file) or (only_small and stamp[1] > SMALL_BYTES):
                return
            self._blobs.put(container, file.relative_to(root).as_posix(), file.read_bytes())
        except FileNotFoundError:
            return  # renamed or deleted by the job meanwhile; the last flush sees what is left
        self._seen[file] = stamp

    def _asset_uri(self, kind: str, name: str, by: str, which: str) -> str:
        resources: dict[str, Any] = self._workspace.resources
        if by.lower() == "labels":
            latest = resources.get(f"{kind}/{name}".lower(), {}).get("properties", {}).get("latestVersion")
            which = latest or which
        found = resources.get(f"{kind}/{name}/versions/{which}".lower())
        if found is None:
            raise NotThereError(f"Could not find asset with name {name} and version {which}")
        properties = found["properties"]
        return str(properties.get("dataUri") or properties.get("modelUri") or "")


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_mtime_ns, status.st_size
