"""The process beside a rank that follows its spool into MLflow: ``python -m launcher.tracking.follower``.

It reads messages (JSON lines) from its standard input and rows from the spool, and may be as slow as MLflow is. It
ends when told how the run ended, or when the rank that started it is gone; either way within a bounded time.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import queue
import signal
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.tracking.courier import Courier, Outbox
from launcher.tracking.mlflow_tracker import RefusedError, UnavailableError
from launcher.tracking.spool import METRICS_FILE, Row
from launcher.tracking.system_metrics import Sampler
from launcher.tracking.target import Target, resolve_target

if TYPE_CHECKING:
    from collections.abc import Iterable

DRAIN_SECONDS = 1.0
"""Between two looks at the spool."""
SAMPLE_SECONDS = 10.0
"""Between two samples of the node; MLflow's own default."""
LONGEST_PAUSE_SECONDS = 60.0
"""Between two tries while MLflow does not answer; it starts at DRAIN_SECONDS and doubles."""
ORPHAN_SECONDS = 10.0
"""How long it goes on once the rank is gone without a word."""
FAILED_FILE = "failed"
"""In the output folder: whoever ends the ranks because one of them failed leaves it first."""
AZURE_SAMPLED_NODES = 3
"""Azure ML takes 50 metric names a run: 16 of training, and 10 for each of these nodes."""
NICENESS = 10
"""The ranks come first on a machine with few cores."""

log = logging.getLogger("launcher.tracking")
Message = dict[str, Any]


class Inbox:
    """Messages of the rank, taken off the pipe at once, so that the rank never waits to send one.

    The word that the run has ended starts a watchdog: the process is over when it barks, in whatever call it hangs.
    """

    def __init__(self, lines: Iterable[bytes], *, parent: int, failed: Path) -> None:
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._parent = parent
        self._failed = failed
        self._is_ending = False
        self._was_signalled = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note_signal)
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()

    def messages(self, *, seconds: float) -> list[Message]:
        """What came within ``seconds``, the first at once; when the rank is gone untold, how that ends the run."""
        try:
            found = [self._messages.get(timeout=seconds)]
        except queue.Empty:
            return [self._last_word()] if os.getppid() != self._parent else []
        while not self._messages.empty():
            found.append(self._messages.get())
        return [self._last_word() if message is None else message for message in found]

    def _read(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            message = json.loads(line)
            if "finish" in message:
                self._end_within(message["seconds"])
            self._messages.put(message)
        self._end_within(ORPHAN_SECONDS)
        self._messages.put(None)

    def _last_word(self) -> Message:
        """The rank was killed: by the signal that came here too (cancel, preemption), or for a reason of its own.

        The signal also comes when another rank has failed; then there is the file ``failed``.
        """
        self._end_within(ORPHAN_SECONDS)
        return {"finish": "KILLED" if self._was_signalled and not self._failed.exists() else "FAILED"}

    def _end_within(self, seconds: float) -> None:
        if not self._is_ending:
            self._is_ending = True
            watchdog = threading.Timer(seconds, _give_up)
            watchdog.daemon = True
            watchdog.start()

    def _note_signal(self, *_: Any) -> None:
        self._was_signalled = True


def _give_up() -> None:
    log.warning("MLflow did not take all of this run in time; %s has it, and a resumed run brings it", METRICS_FILE)
    os._exit(1)


@dataclass
class Pace:
    """When MLflow is tried next: each second while it answers, ever more rarely while it does not."""

    pause: float = DRAIN_SECONDS
    try_at: float = 0.0
    """On the monotonic clock."""
    has_warned: bool = False

    def answered(self) -> None:
        """It took everything."""
        self.pause, self.try_at = DRAIN_SECONDS, 0.0

    def missed(self, reason: Exception) -> None:
        """It did not answer."""
        if not self.has_warned:
            log.warning("MLflow does not answer (%s); metrics wait in %s, training goes on", reason, METRICS_FILE)
        self.has_warned = True
        self.try_at = time.monotonic() + self.pause
        self.pause = min(2 * self.pause, LONGEST_PAUSE_SECONDS)


def main(arguments: list[str]) -> None:
    """Follow one run: output folder, node, and ``leads`` (rank 0's spool and the run's end) or ``samples``."""
    output, node, role = Path(arguments[0]), int(arguments[1]), arguments[2]
    logging.basicConfig(format="launcher: %(message)s")
    warnings.simplefilter("ignore")  # MLflow's, about MLflow: not what a rank's log is read for
    os.nice(NICENESS)
    inbox, outbox = Inbox(sys.stdin.buffer, parent=os.getppid(), failed=output / FAILED_FILE), Outbox()
    while outbox.target is None and outbox.ending is None:
        _listen(inbox, outbox)
    if outbox.target is None:
        return
    if importlib.util.find_spec("mlflow"):
        target = resolve_target(outbox.target, os.environ)
        courier = Courier(output, target=target, attempt=outbox.target["attempt"], leads=role == "leads")
        follow(inbox, outbox, courier, _sampler(outbox.target, target, node))
    else:
        log.warning("MLflow is not installed (pip install 'launcher[local]'); metrics are in %s", METRICS_FILE)
        while outbox.ending is None:
            _listen(inbox, outbox)


def follow(inbox: Inbox, outbox: Outbox, courier: Courier, sampler: Sampler | None) -> None:
    """Keep MLflow up to date until it knows how the run ended, or the time for that is over."""
    pace, sample_at = Pace(), 0.0
    while True:
        if _listen(inbox, outbox):
            pace.answered()  # from now on it is tried each second
        if sampler and time.monotonic() >= sample_at:
            sample_at = time.monotonic() + SAMPLE_SECONDS
            outbox.samples.append(Row(step=0, time=time.time(), attempt=1, metrics=sampler.sample()))
        if time.monotonic() >= pace.try_at and _deliver(courier, outbox, pace) and outbox.ending:
            return


def _listen(inbox: Inbox, outbox: Outbox) -> bool:
    """Take what comes within DRAIN_SECONDS. Returns whether the run has ended with it."""
    was_running = outbox.ending is None
    for message in inbox.messages(seconds=DRAIN_SECONDS):
        outbox.take(message)
    return was_running and outbox.ending is not None


def _deliver(courier: Courier, outbox: Outbox, pace: Pace) -> bool:
    try:
        courier.deliver(outbox)
    except (UnavailableError, RefusedError) as reason:
        pace.missed(reason)
        return False
    pace.answered()
    return True


def _sampler(wanted: Message, target: Target, node: int) -> Sampler | None:
    is_over_the_limit = target.is_azure and node >= AZURE_SAMPLED_NODES
    return Sampler(node) if wanted["system_metrics"] and not is_over_the_limit else None


if __name__ == "__main__":
    main(sys.argv[1:])
