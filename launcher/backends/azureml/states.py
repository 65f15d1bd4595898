"""Azure ML's states in the nine words every backend speaks, and why a job is where it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_args

from launcher.backends.backend import State

if TYPE_CHECKING:
    from collections.abc import Mapping

_OTHER_WORDS: dict[str, State] = {
    "Starting": "NotStarted",
    "Provisioning": "Preparing",
    "NotResponding": "Running",
    "Paused": "Queued",
    "Unknown": "NotStarted",
}
"""Words of the service that are none of ours (azure-ai-ml 1.35.2, ``operations/_run_history_constants.py``)."""
_MEANINGS: dict[str, str] = {
    "NotStarted": "accepted; the service has not begun",
    "Starting": "accepted; the service has begun",
    "Provisioning": "nodes are being created",
    "Preparing": "the image is being built or pulled, the data mounted",
    "Queued": "waiting for nodes: capacity, or quota",
    "Finalizing": "outputs are being uploaded",
    "CancelRequested": "told to end",
    "NotResponding": "no heartbeat from the nodes",
    "Paused": "paused by an administrator",
}
_EXIT_CODE = re.compile(r"status code (-?\d+)|exit ?code:? (-?\d+)", re.IGNORECASE)


def state_of(word: str) -> State:
    """The state a word of the service stands for; a word nobody knows yet is work in progress."""
    if word in get_args(State):
        return word  # type: ignore[return-value]
    return _OTHER_WORDS.get(word, "Running")


def reason(word: str, details: Mapping[str, Any] | None) -> str | None:
    """Why the run is in this state: the service's own error or warning, else what the state means."""
    error, warning = error_text(details), _warning(details)
    return error or warning or _MEANINGS.get(word)


def error_text(details: Mapping[str, Any] | None) -> str | None:
    """The service's error in one line, its code in front when it says more than "UserError"."""
    error = ((details or {}).get("error") or {}).get("error") or {}
    message = " ".join(str(error.get("message") or "").split())
    code = error.get("code")
    if not message:
        return code
    return message if code in (None, "UserError") else f"{code}: {message}"


def exit_code(details: Mapping[str, Any] | None) -> int | None:
    """The exit code of the process that failed first, where the error says it."""
    match = _EXIT_CODE.search(error_text(details) or "")
    return int(match[1] or match[2]) if match else None


def _warning(details: Mapping[str, Any] | None) -> str | None:
    messages = [warning.get("message") for warning in (details or {}).get("warnings") or ()]
    return "; ".join(message for message in messages if message) or None
