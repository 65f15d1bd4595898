"""Azurite, Microsoft's own blob storage emulator: found, started on a free port, and ended with its emulator."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.emulator.lifetime import dies_with
from launcher.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator

HOW_TO_GET_IT = "npm install azurite   (needs Node 18 or newer), or set LAUNCHER_AZURITE to its azurite-blob"
_START_SECONDS = 60


def find_azurite() -> Path | None:
    """``$LAUNCHER_AZURITE``, ``node_modules`` here or above, or the PATH; None when it is nowhere."""
    chosen = os.environ.get("LAUNCHER_AZURITE")
    if chosen:
        return Path(chosen) if Path(chosen).is_file() else None
    here = Path.cwd()
    local = (folder / "node_modules/.bin/azurite-blob" for folder in (here, *here.parents))
    found = next((path for path in local if path.is_file()), None)
    on_path = shutil.which("azurite-blob")
    return found or (Path(on_path) if on_path else None)


@contextmanager
def azurite(folder: Path) -> Iterator[int]:
    """The port of a running Azurite that keeps its blobs below ``folder``.

    Raises:
        MissingExtraError: it is not installed, or does not start.
    """
    program = find_azurite()
    if program is None:
        raise MissingExtraError("the emulator keeps blobs in Azurite, which is not here", suggestion=HOW_TO_GET_IT)
    # --skipApiVersionCheck: the SDK asks for a newer storage API than any released Azurite knows by name.
    command = (
        str(program), "--blobHost", "127.0.0.1", "--blobPort", "0", "--location", str(folder),
        "--skipApiVersionCheck", "--disableTelemetry",
    )  # fmt: skip
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=dies_with(os.getpid()),
    )  # fmt: skip
    listener = _Listener(process)
    try:
        yield listener.port()
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        listener.close()


class _Listener:
    """Reads what Azurite says: first its port; afterwards so that it never blocks on a full pipe."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._stream = process.stdout
        self._said: list[str] = []
        self._found: int | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def port(self) -> int:
        """The port it listens on.

        Raises:
            MissingExtraError: it does not start.
        """
        self._ready.wait(_START_SECONDS)
        if self._found is None:
            said = "".join(self._said)[-400:] or "it says nothing"
            raise MissingExtraError(f"Azurite does not start: {said}", suggestion=HOW_TO_GET_IT)
        return self._found

    def close(self) -> None:
        """Read to the end, which has come."""
        self._thread.join()
        self._stream.close()

    def _listen(self) -> None:
        for line in self._stream:
            match = re.search(r"listens on http://127\.0\.0\.1:(\d+)", line)
            if match:
                self._found = int(match[1])
                self._ready.set()
            elif self._found is None:
                self._said.append(line)
        self._ready.set()
