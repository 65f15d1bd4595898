"""``python -m launcher.backends.local.supervisor RUN_FOLDER``: starts the ranks, watches them, ends them, says why.

A process of its own, detached from whoever submitted; it alone writes ``state.json``, and holds the folder's lock
(inherited from the submitter) for as long as it lives. Standard library only, so that it starts in a blink.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.backends.local import ranks as processes
from launcher.backends.local.cause import cause_of, port_was_taken
from launcher.backends.local.folder import RunFolder
from launcher.backends.local.state import read_state, write_state
from launcher.backends.local.steps import StepClock, newest_step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from launcher.backends.backend import State
    from launcher.backends.local.folder import Launch
    from launcher.backends.local.ranks import Rank

TIMED_OUT = 124
"""As timeout(1) exits."""
_FAILURE_GRACE_SECONDS = 5.0
"""For ranks whose peer is gone: no checkpoint can be made any more, so little time is needed."""
_CAUSE_SECONDS = 2.0
"""For the guilty rank to wind up, after its peers have complained that it is gone."""
_FRUITLESS_ATTEMPTS = 3
"""Starts in a row without a new step, after which another one would be no different."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the ranks ended."""

    state: State
    reason: str | None = None
    exit_code: int | None = None
    may_restart: bool = False
    grace_seconds: float = _FAILURE_GRACE_SECONDS


class Supervisor:
    """One run, from the first rank's start to the last one's end."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._launch: Launch = folder.read_launch()
        self._state = replace(read_state(folder.state), supervisor=os.getpid())
        self._started = time.monotonic()
        self._told_to_stop = False

    def run(self) -> None:
        """See the run through; whatever happens here, the ranks are ended and the state says so."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            outcome = self._attempts()
        except Exception as error:
            with suppress(OSError):
                traceback.print_exc()
            processes.kill_leftovers(self._folder)
            outcome = Outcome(state="Failed", reason=f"the supervisor failed: {error}")
        self._enter(outcome.state, reason=outcome.reason, exit_code=outcome.exit_code)

    def _attempts(self) -> Outcome:
        """Start all ranks again after a failure, as often as asked, and as long as it gets any further."""
        furthest, fruitless = newest_step(self._folder.metrics), 0
        port_retried = False
        while True:
            outcome, ranks = self._attempt()
            if not outcome.may_restart or self._is_cancelled():
                return outcome
            if not port_retried and port_was_taken(ranks, self._folder):
                port_retried = True
                continue
            step = newest_step(self._folder.metrics)
            fruitless, furthest = (0, step) if step > furthest else (fruitless + 1, furthest)
            if self._state.restarts >= self._launch.max_restarts:
                return outcome
            if fruitless >= _FRUITLESS_ATTEMPTS:
                reason = f"crash loop, {fruitless} attempts without a new step: {outcome.reason}"
                return replace(outcome, reason=reason)
            self._state = replace(self._state, restarts=self._state.restarts + 1)

    def _attempt(self) -> tuple[Outcome, Sequence[Rank]]:
        """All ranks once: started, watched, ended."""
        self._enter("Preparing")
        self._folder.failed.unlink(missing_ok=True)
        ranks: list[Rank] = []
        outcome = Outcome(state="Failed")
        try:
            outcome = self._start(ranks) or self._watch(ranks)
            if outcome.state == "Completed":
                self._enter("Finalizing")
        finally:
            if outcome.may_restart:
                self._note_failure()
            processes.end(ranks, self._folder, grace_seconds=outcome.grace_seconds)
        return self._truth(outcome, ranks), ranks

    def _start(self, ranks: list[Rank]) -> Outcome | None:
        """Start every rank; an outcome at once when one cannot be started."""
        port = processes.free_port()
        try:
            for rank in range(self._launch.world_size):
                restarts = self._state.restarts
                ranks.append(processes.start(self._launch, self._folder, rank, port=port, restarts=restarts))
        except OSError as error:
            return Outcome(state="Failed", reason=f"rank {len(ranks)} cannot be started: {error}", exit_code=127)
        self._enter("Running", ranks={str(rank.rank): rank.process.pid for rank in ranks})
        return None

    def _watch(self, ranks: Sequence[Rank]) -> Outcome:
        """Wait for the first thing that ends the attempt."""
        clock = StepClock(self._folder.metrics, self._launch.hang_timeout_seconds)
        while True:
            codes = [rank.process.poll() for rank in ranks]
            if self._is_cancelled():
                return self._interrupted("Canceled", "canceled")
            if any(codes):
                return self._failure(ranks)
            if all(code == 0 for code in codes):
                return Outcome(state="Completed")
            if self._is_late():
                reason = f"timed out after {self._launch.timeout_seconds:g} s (limits.timeout_hours)"
                return self._interrupted("Failed", reason, exit_code=TIMED_OUT)
            if silence := clock.hang():
                processes.dump_stacks(ranks)
                return Outcome(state="Failed", reason=silence, may_restart=True)
            time.sleep(processes.POLL_SECONDS)

    def _failure(self, ranks: Sequence[Rank]) -> Outcome:
        """Why the first rank died; peers that die right after it are given the time to say so."""
        deadline = time.monotonic() + _CAUSE_SECONDS
        while (cause := cause_of(ranks, self._folder)).is_consequence and time.monotonic() < deadline:
            time.sleep(processes.POLL_SECONDS)
            for rank in ranks:
                rank.process.poll()
        return Outcome(state="Failed", reason=cause.reason, exit_code=cause.exit_code, may_restart=True)

    def _note_failure(self) -> None:
        """Before the others are ended: what follows the run for MLflow tells a failure from a cancellation by it."""
        with suppress(OSError):
            self._folder.output.mkdir(exist_ok=True)
            self._folder.failed.touch()

    def _interrupted(self, state: State, reason: str, *, exit_code: int | None = None) -> Outcome:
        grace = self._launch.grace_seconds
        return Outcome(state=state, reason=reason, exit_code=exit_code, grace_seconds=grace)

    def _truth(self, outcome: Outcome, ranks: Sequence[Rank]) -> Outcome:
        """Completed if, and only if, all ranks left with 0 and the trainer says so itself."""
        all_left_well = bool(ranks) and all(rank.process.returncode == 0 for rank in ranks)
        says_completed = self._folder.completed.exists()
        if all_left_well and self._launch.needs_completion and says_completed:
            return Outcome(state="Completed")
        if outcome.state == "Completed" and self._launch.needs_completion:
            return Outcome(state="Failed", reason="every rank exited with code 0, but the training did not complete")
        return outcome

    def _is_cancelled(self) -> bool:
        return self._told_to_stop or self._folder.cancel.exists()

    def _is_late(self) -> bool:
        limit = self._launch.timeout_seconds
        return limit is not None and time.monotonic() - self._started > limit

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._told_to_stop = True

    def _enter(
        self,
        state: State,
        *,
        reason: str | None = None,
        exit_code: int | None = None,
        ranks: dict[str, int] | None = None,
    ) -> None:
        times = {**self._state.times, state: self._state.times.get(state, time.time())}
        self._state = replace(
            self._state, state=state, reason=reason, exit_code=exit_code, times=times, ranks=ranks or self._state.ranks
        )
        write_state(self._folder.state, self._state)


def main() -> None:
    """Leave the submitter's process tree, then supervise the folder named on the command line."""
    if os.fork():
        os._exit(0)
    Supervisor(RunFolder(Path(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
