"""Azurite, Microsoft's own blob storage emulator: found, started on a free port, and ended with its emulator."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

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
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield _port(process)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()


def _port(process: subprocess.Popen[str]) -> int:
    """Read the port it chose; what it prints afterwards is drained, or it would block on a full pipe."""
    import threading

    said: list[str] = []
    found: list[int] = []
    ready = threading.Event()

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            match = re.search(r"listens on http://127\.0\.0\.1:(\d+)", line)
            if match:
                found.append(int(match[1]))
                ready.set()
        ready.set()

    threading.Thread(target=listen, daemon=True).start()
    ready.wait(_START_SECONDS)
    if not found:
        raise MissingExtraError(
            f"Azurite does not start: {''.join(said)[-400:] or 'it says nothing'}", suggestion=HOW_TO_GET_IT
        )
    return found[0]
