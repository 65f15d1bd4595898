"""A folder of a datastore, read and written from here: outputs of runs, data to upload."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.backends.azureml.credentials import credential
from launcher.backends.azureml.failure import DoubtError, translated
from launcher.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from launcher.backends.azureml.client import Client

_DATASTORE = re.compile(r"(?i)^azureml:.*?datastores/([^/]+)/paths/(.*?)/?$")
_THREADS = 8
_PART = ".part"


@dataclass(frozen=True, kw_only=True)
class Blob:
    """One file of the folder."""

    path: str
    """Relative to the folder."""
    bytes: int
    digest: str
    """What storage knows of the content: its MD5, else its ETag."""


class Folder:
    """A folder of a datastore."""

    def __init__(self, container: Any, prefix: str) -> None:
        self._container = container
        self._prefix = prefix

    def files(self) -> Iterator[Blob]:
        """Every file below it, by name."""
        with _storage(f"list {self._prefix}"):
            for found in self._container.list_blobs(name_starts_with=f"{self._prefix}/"):
                md5 = found.content_settings.content_md5
                digest = md5.hex() if md5 else str(found.etag)
                yield Blob(path=found.name.removeprefix(f"{self._prefix}/"), bytes=found.size, digest=digest)

    def read(self, path: str, *, start: int = 0) -> bytes | None:
        """The content of a file from ``start`` on; None if there is no such file. At its end there is nothing left."""
        from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

        with _storage(f"read {path}"):
            try:
                stream = self._container.download_blob(f"{self._prefix}/{path}", offset=start or None)
                return bytes(stream.readall())
            except ResourceNotFoundError:
                return None
            except HttpResponseError as error:
                if error.status_code == 416:
                    return b""
                raise

    def fetch(self, wanted: Iterable[Blob], target: Path, *, progress: Callable[[int], None]) -> None:
        """Copy files below ``target``; one that is there already, whole, is not fetched again."""
        with ThreadPoolExecutor(_THREADS) as pool:
            for size in pool.map(lambda blob: self._fetch_one(blob, target), wanted):
                progress(size)

    @property
    def address(self) -> str:
        """Where it lies, as an https address."""
        return f"{self._container.url.partition('?')[0]}/{self._prefix}"

    def put(self, path: str, source: Path) -> None:
        """Upload one file, replacing what is there."""
        with _storage(f"upload {source}"), source.open("rb") as stream:
            self._container.upload_blob(f"{self._prefix}/{path}", stream, overwrite=True, max_concurrency=4)

    def write(self, path: str, content: bytes) -> None:
        """Write one small file, replacing what is there."""
        with _storage(f"upload {path}"):
            self._container.upload_blob(f"{self._prefix}/{path}", content, overwrite=True)

    def remove(self, path: str) -> None:
        """Delete one file."""
        with _storage(f"delete {path}"):
            self._container.delete_blob(f"{self._prefix}/{path}")

    def _fetch_one(self, blob: Blob, target: Path) -> int:
        file = target / blob.path
        if file.is_file() and file.stat().st_size == blob.bytes:
            return 0
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(file.name + _PART)
        with _storage(f"download {blob.path}"), part.open("wb") as stream:
            self._container.download_blob(f"{self._prefix}/{blob.path}", max_concurrency=4).readinto(stream)
        part.replace(file)
        return blob.bytes


def open_folder(client: Client, uri: str) -> Folder:
    """The folder at ``azureml://datastores/NAME/paths/PATH``, with the datastore's own key or the caller's identity.

    Raises:
        BackendError: it is no path of a datastore, or the datastore cannot be opened.
    """
    match = _DATASTORE.match(uri)
    if match is None:
        raise BackendError(f"{uri} is no path of a datastore", code="azureml.datastore")
    properties, secret = client.datastore(match[1]), client.datastore_secret(match[1])
    from azure.storage.blob import ContainerClient

    container = ContainerClient(
        f"https://{properties['accountName']}.blob.{properties.get('endpoint') or 'core.windows.net'}",
        properties.get("containerName") or properties.get("filesystem"),
        credential=secret or credential(),
        # before each try: initial + base ** number, give or take the jitter; storage's own wait 15, 18 and 24 s
        initial_backoff=client.patience.backoff_seconds,
        increment_base=4 * client.patience.backoff_seconds,
        random_jitter_range=client.patience.backoff_seconds,
        retry_total=client.patience.retries,
        connection_timeout=client.patience.connect_seconds,
        read_timeout=client.patience.read_seconds,
    )
    return Folder(container, match[2])


@contextmanager
def _storage(doing: str) -> Iterator[None]:
    """Storage errors in our words; one that may pass was retried by the SDK already."""
    try:
        with translated(doing):
            yield
    except DoubtError as doubt:
        raise BackendError(str(doubt), suggestion="try again in a minute", code="azureml.unavailable") from doubt
