"""What is told when the fault is ours: one line, and a file to send along; never a traceback on the screen."""

from __future__ import annotations

import datetime
import platform
import traceback
from typing import TYPE_CHECKING

from launcher import __version__
from launcher.errors import ExitCode
from launcher.home import home
from launcher.recipe.redact import redact_override, redact_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from launcher.cli.invocation import Invocation


def tell_defect(error: Exception, arguments: Sequence[str], invocation: Invocation) -> int:
    """Name the exception and where its traceback was written; ``--debug`` shows it instead."""
    name = type(error).__name__
    try:
        trace = f"the traceback is in {_write(error, arguments)}"
    except OSError as reason:
        trace = f"no traceback could be written ({reason.strerror}); --debug shows it"
    message = f"unexpected {name}: {trace}"
    if invocation.json:
        invocation.answer({"error": {"code": "defect", "message": message, "faults": []}}, str)
    else:
        invocation.say(f"error: {message}")
    return ExitCode.DEFECT


def _write(error: Exception, arguments: Sequence[str]) -> Path:
    now = datetime.datetime.now(datetime.UTC)
    path = home() / "debug" / f"{now:%Y%m%dT%H%M%S%f}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(
        [
            f"launcher {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"launcher {' '.join(map(redact_override, arguments))}",
            redact_text("".join(traceback.format_exception(error))),
        ]
    )
    path.write_text(text, encoding="utf-8")
    return path
