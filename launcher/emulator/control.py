"""What a test asks the emulator itself, over plain HTTP under ``/emulator``: faults, ledger, preemption, settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from launcher.emulator.messages import RefusedError, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.emulator.faults import FaultBox
    from launcher.emulator.sign_in import SignIn
    from launcher.emulator.traffic import Traffic
    from launcher.emulator.workspace import Job, Workspace


class Control:
    """Answers ``/emulator/...``."""

    def __init__(self, workspace: Workspace, faults: FaultBox, sign_in: SignIn, traffic: Traffic) -> None:
        self._workspace = workspace
        self._faults = faults
        self._sign_in = sign_in
        self._traffic = traffic
        self._verbs: dict[str, Callable[[dict[str, Any]], Any]] = {
            "ledger": lambda asked: self._ledger(**asked),
            "jobs": lambda asked: {name: self._job(job) for name, job in self._workspace.jobs.items()},
            "faults": self._add_faults,
            "faults/clear": lambda asked: self._faults.clear(),
            "faults/hits": lambda asked: self._faults.hits,
            "traffic": lambda asked: self._traffic.document(),
            "traffic/clear": lambda asked: self._traffic.clear(),
            "preempt": self._preempt,
            "end-all": self._end_all,
            "settings": self._set,
            "token-lifetime": self._token_lifetime,
        }

    def answer(self, request: Request) -> Response:
        """One wish."""
        verb = request.path.removeprefix("/emulator/")
        if verb not in self._verbs:
            raise RefusedError(404, "NotFound", f"no /emulator/{verb}; there are {', '.join(self._verbs)}")
        try:
            return Response(document=self._verbs[verb](request.document()) or {})
        except (KeyError, TypeError, ValueError) as error:
            raise RefusedError(400, "BadRequest", str(error)) from error

    def _ledger(self, name: str | None = None) -> dict[str, Any]:
        """Who was accepted and how often each name was PUT: all, or one name."""
        with self._workspace.lock:
            accepted, puts = self._workspace.accepted, self._workspace.puts
            if name is None:
                return {"accepted": list(accepted), "puts": dict(puts)}
            return {
                "accepted": [entry for entry in accepted if entry["name"] == name],
                "puts": {name: puts.get(name, 0)},
            }

    def _job(self, job: Job) -> dict[str, Any]:
        return {
            "name": job.name,
            "state": job.state,
            "error": job.error,
            "times": job.times,
            "waits_for": job.waits_for,
        }

    def _add_faults(self, asked: dict[str, Any]) -> None:
        for fault in asked["faults"]:
            self._faults.add(fault)

    def _preempt(self, asked: dict[str, Any]) -> None:
        with self._workspace.changed:
            job = self._workspace.jobs[asked["name"].lower()]
            job.wants_end = job.wants_end or "preempt"
            self._workspace.changed.notify_all()

    def _end_all(self, asked: dict[str, Any]) -> None:
        """Cancel every job that has not ended."""
        with self._workspace.changed:
            for job in self._workspace.jobs.values():
                job.wants_end = job.wants_end or "cancel"
            self._workspace.changed.notify_all()

    def _set(self, asked: dict[str, Any]) -> None:
        """Change settings: quota, capacity, role, what a repeated PUT is told."""
        with self._workspace.changed:
            self._workspace.settings = replace(self._workspace.settings, **asked)
            self._workspace.changed.notify_all()

    def _token_lifetime(self, asked: dict[str, Any]) -> None:
        self._sign_in.lifetime_seconds = float(asked["seconds"])
