"""Logs of a run's ranks, read from where run history keeps them: only what is new, rank by rank, until the run ends.

Not the SDK's ``stream()``: it downloads every log whole at every look, prints none of a job that has ended, and calls
Canceled a success.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.backends.azureml.states import state_of
from launcher.backends.backend import TERMINAL
from launcher.errors import NoSuchRunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import requests

_RANK = re.compile(r"user_logs/std_log(?:_process_0*(\d+))?\.txt$")
"""One file a process: ``std_log.txt`` of a job with one, ``std_log_process_07.txt`` otherwise."""
_TIMEOUT = (10, 60)
POLL_SECONDS = 1.0


@dataclass(kw_only=True)
class _Tail:
    """How far one log has been read."""

    offset: int = 0
    unfinished: str = ""
    """The last line, while it has no end."""


def tail(
    details: Callable[[], Mapping[str, Any] | None],
    *,
    name: str,
    ranks: frozenset[int] | None,
    follow: bool,
    poll_seconds: float = POLL_SECONDS,
) -> Iterator[str]:
    """Lines of the ranks' logs; prefixed with the rank unless exactly one is asked for.

    Args:
        details: Asks run history; it may answer None while the run is not visible yet.
        name: Of the run.
        ranks: Which ranks; all of them when None.
        follow: Whether to go on until the run has ended.
        poll_seconds: Between two looks.
    """
    tails: dict[int, _Tail] = {}
    session = _session()
    while True:
        known = details()
        if known is None:
            raise NoSuchRunError(f"run history has no run {name}", code="no_such_run")
        ended = state_of(str(known.get("status"))) in TERMINAL or not follow
        logs = rank_logs(known.get("logFiles") or {})
        _require(ranks, logs, ended=ended)
        for rank in sorted(logs if ranks is None else ranks.intersection(logs)):
            prefix = "" if ranks is not None and len(ranks) == 1 else f"[rank {rank}] "
            for line in _new_lines(session, logs[rank], tails.setdefault(rank, _Tail()), ended=ended):
                yield prefix + line
        if ended:
            return
        time.sleep(poll_seconds)


def rank_logs(log_files: Mapping[str, str]) -> dict[int, str]:
    """Rank -> signed address of its log."""
    matches = ((_RANK.search(path), url) for path, url in log_files.items())
    return {int(match[1] or 0): url for match, url in matches if match}


def last_lines(logs: Mapping[int, str], *, most_bytes: int) -> dict[int, list[str]]:
    """Rank -> the last ``most_bytes`` of its log, in lines; a log that cannot be read is left out."""
    import requests

    tails = {}
    with _session() as session:
        for rank, url in sorted(logs.items()):
            try:
                tails[rank] = _end_of(session, url, most_bytes).decode("utf-8", "replace").splitlines()
            except requests.RequestException:
                continue
    return tails


def _end_of(session: requests.Session, url: str, most_bytes: int) -> bytes:
    """The end of a blob; storage knows no ranges that count from the end."""
    size = int(session.head(url, timeout=_TIMEOUT).headers.get("Content-Length") or 0)
    if size == 0:
        return b""
    answer = session.get(url, headers={"Range": f"bytes={max(0, size - most_bytes)}-"}, timeout=_TIMEOUT)
    answer.raise_for_status()
    return answer.content[-most_bytes:]


def _require(ranks: frozenset[int] | None, logs: Mapping[int, str], *, ended: bool) -> None:
    absent = sorted((ranks or frozenset()) - logs.keys())
    if absent and logs and ended:
        raise UsageError(f"there is no rank {absent[0]}", allowed=f"0 to {max(logs)}", code="usage.rank")


def _new_lines(session: requests.Session, url: str, tail: _Tail, *, ended: bool) -> Iterator[str]:
    text = tail.unfinished + _read_on(session, url, tail)
    *whole, tail.unfinished = text.split("\n")
    yield from (line.rstrip("\r") for line in whole)
    if ended and tail.unfinished:
        yield tail.unfinished
        tail.unfinished = ""


def _read_on(session: requests.Session, url: str, tail: _Tail) -> str:
    """What was written since the last look; 416 says nothing was. A look that fails is made up for by the next."""
    import requests

    try:
        answer = session.get(url, headers={"Range": f"bytes={tail.offset}-"}, timeout=_TIMEOUT)
    except requests.RequestException:
        return ""
    if answer.status_code not in (200, 206):
        return ""
    content = answer.content if answer.status_code == 206 else answer.content[tail.offset :]
    tail.offset += len(content)
    return content.decode("utf-8", "replace")


def _session() -> requests.Session:
    import requests

    return requests.Session()
