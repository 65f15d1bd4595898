"""Code into blob storage: many small files at once over connections that stay open, each checked by its MD5."""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import quote

from launcher.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable

    import requests

    from launcher.job.stage import StagedFile

_THREADS = 16
_TRIES = 5
_TIMEOUT = (10, 60)
_API_VERSION = "2020-12-06"
_RETRIABLE = frozenset({408, 429, 500, 502, 503, 504})


def upload(
    files: tuple[StagedFile, ...], signed_container: str, folder: str, *, progress: Callable[[int], None] | None = None
) -> None:
    """Put every file under ``folder`` of the container at ``signed_container`` (an address with its signature).

    Args:
        files: What to upload.
        signed_container: ``https://ACCOUNT.blob.../CONTAINER?SIGNATURE``.
        folder: Prefix of the blobs' names.
        progress: Told the bytes of every file that has arrived.

    Raises:
        BackendError: storage refuses, or does not answer; nothing refers to what was uploaded so far.
    """
    address, _, signature = signed_container.partition("?")
    sessions = threading.local()

    def put(file: StagedFile) -> None:
        if not hasattr(sessions, "one"):
            sessions.one = _session()
        _put(sessions.one, f"{address}/{folder}/{quote(file.path)}?{signature}", file)
        if progress:
            progress(len(file.content))

    with ThreadPoolExecutor(min(_THREADS, max(len(files), 1))) as pool:
        for _ in pool.map(put, files):
            pass


def _session() -> requests.Session:
    """Proxies and certificates are read once from the environment, not for every file."""
    import requests

    session = requests.Session()
    settings = session.merge_environment_settings("https://blob.core.windows.net", {}, False, None, None)
    session.proxies, session.verify, session.trust_env = settings["proxies"], settings["verify"], False
    return session


def _put(session: requests.Session, url: str, file: StagedFile) -> None:
    import requests

    headers = {
        "x-ms-blob-type": "BlockBlob",
        "x-ms-version": _API_VERSION,
        "Content-MD5": base64.b64encode(hashlib.md5(file.content, usedforsecurity=False).digest()).decode(),
    }
    said = ""
    for attempt in range(_TRIES):
        try:
            answer = session.put(url, data=file.content, headers=headers, timeout=_TIMEOUT)
        except requests.RequestException as error:
            said = type(error).__name__
        else:
            if answer.status_code == 201:
                return
            said = f"{answer.status_code} {answer.headers.get('x-ms-error-code', '')}".strip()
            if answer.status_code not in _RETRIABLE:
                break
        time.sleep(0.2 * 2**attempt)
    raise BackendError(f"cannot upload {file.path}: storage says {said}", suggestion="try again", code="azureml.upload")
