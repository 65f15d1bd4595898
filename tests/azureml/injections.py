"""Random faults on a submission, and what must hold: ``python -m tests.azureml.injections 10000 SEED``."""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.backends.azureml.backend import AzureMLBackend
from launcher.backends.azureml.patience import Patience
from launcher.emulator.faults import KINDS
from launcher.errors import LauncherError, NoSuchRunError, UnknownOutcomeError
from launcher.runs import journal
from launcher.runs.reconcile import journaled

if TYPE_CHECKING:
    from launcher.job.spec import JobSpec
    from tests.emulated import Inside

PATIENCE = Patience(
    read_seconds=1.0,
    connect_seconds=2.0,
    backoff_seconds=0.002,
    longest_pause_seconds=0.1,
    retries=2,
    settle_seconds=1.0,
)
_PLACES = (
    ("PUT", "/jobs/"), ("PUT", "/jobs/"), ("PUT", "/jobs/"), ("GET", "/jobs/"), ("GET", "/jobs/"), ("GET", "/codes/"),
    ("GET", "/environments/"), ("POST", "listSecrets"), ("GET", "usages"), ("*", "blob.core"), ("*", ""),
)  # fmt: skip
JOBS_OF_ONE_CODE = 50
_STATUSES = (400, 401, 403, 404, 408, 409, 429, 500, 502, 503, 504)
_REFUSALS = frozenset({400, 401, 403, 404})


def random_faults(rng: random.Random, name: str) -> list[dict[str, Any]]:
    """One to three faults, most of them where the job itself is asked for or sent."""
    faults = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        method, path = rng.choice(_PLACES)
        # a GET that lies 404 is what "invisible" is for: it comes to its senses
        status = rng.choice([status for status in _STATUSES if status != 404 or method not in ("GET", "*")])
        faults.append(
            {
                "kind": rng.choice(KINDS),
                "method": method,
                "path": f"/jobs/{name}" if path == "/jobs/" else path,
                "times": rng.choice((1, 1, 1, 2, 5, 50)),
                "skip": rng.choice((0, 0, 0, 1)),
                "status": status,
                "seconds": rng.choice((0.05, 1.2)),
                "headers": {"Retry-After": "0.01"} if status == 429 and rng.random() < 0.5 else {},
            }
        )
    return _answerable(faults)


def _answerable(faults: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what nobody could tell from a refusal: accepted, answered with a refusal, and hidden from every look."""
    if not any(fault["kind"] == "invisible" for fault in faults):
        return faults
    is_lie = [fault["kind"] == "status_after" and fault["status"] in _REFUSALS for fault in faults]
    return [fault | {"status": 503} if lies else fault for fault, lies in zip(faults, is_lie, strict=True)]


def inject(inside: Inside, job: JobSpec, rng: random.Random, *, is_journaled: bool = True) -> str:
    """Submit ``job`` under random faults, bring the journal up to date, and check the ledger; what it came to.

    Raises:
        AssertionError: two jobs, a lost job, or an error that is none of ours.
    """
    inside.settings(repeated_put=rng.choice(("accepted", "immutable")))
    faults = random_faults(rng, job.name)
    inside.ask("faults", faults=faults)
    outcome = _submit(job, is_journaled=is_journaled)
    was_struck = bool(inside.ask("faults/hits"))
    inside.ask("faults/clear")
    row = _row(job)
    if row is not None and row.state in ("PLANNED", "UNKNOWN"):
        _reconcile(row)
    _judge(inside, job, outcome, faults)
    assert outcome == "submitted" or was_struck, f"{job.name} failed without a fault"
    return outcome


def _submit(job: JobSpec, *, is_journaled: bool) -> str:
    backend = AzureMLBackend(patience=PATIENCE)
    try:
        if is_journaled:
            journaled(journal.row_of("azureml", job, state="PLANNED"), lambda: backend.submit(job))
        else:
            backend.submit(job)
    except UnknownOutcomeError:
        return "unknown"
    except LauncherError:
        return "refused"
    return "submitted"


def _reconcile(row: journal.Row) -> None:
    found = AzureMLBackend(patience=PATIENCE).find(row.handle)
    if found is not None:
        journal.update(row, state="SUBMITTED", url=found.url)


def _judge(inside: Inside, job: JobSpec, outcome: str, faults: list[dict[str, Any]]) -> None:
    accepted, row = len(inside.accepted(job.name)), _row(job)
    story = f"{job.name}: {outcome}, {accepted} accepted, row {row and row.state}; {faults}"
    assert accepted <= 1, f"a duplicate: {story}"
    assert outcome != "submitted" or accepted == 1, f"a job that is not there was called submitted: {story}"
    assert outcome != "refused" or accepted == 0, f"an accepted job was called refused: {story}"
    assert not accepted or (row is not None and row.state == "SUBMITTED"), f"an accepted job was lost: {story}"


def _row(job: JobSpec) -> journal.Row | None:
    try:
        return journal.find(f"azureml:{job.name}")
    except NoSuchRunError:
        return None


def _code(folder: Path, number: int) -> Path:
    """Code nobody has sent yet: its upload is under fault too."""
    root = folder / f"code-{number}"
    root.mkdir()
    (root / "work.py").write_text(f"print({number})\n")
    return root


def main(count: int, seed: int, *, is_journaled: bool) -> None:
    """``count`` injections in an emulator of its own."""
    import os
    import warnings
    from collections import Counter

    from launcher.emulator.emulator import emulate
    from tests.azureml.jobs import Variants
    from tests.emulated import SETTINGS, Inside

    warnings.simplefilter("ignore")
    with emulate(SETTINGS) as emulator, tempfile.TemporaryDirectory() as folder:
        os.environ |= emulator.variables() | {"LAUNCHER_HOME": f"{folder}/home"}
        inside, rng = Inside(emulator), random.Random(seed)
        inside.settings(processes=0)
        came_to: Counter[str] = Counter()
        for number in range(count):
            if number % JOBS_OF_ONE_CODE == 0:
                variants = Variants(_code(Path(folder), number), script="work.py")
                inside.ask("end-all")  # a job that is judged need not wait in the queue
            came_to[inject(inside, variants.job(number), rng, is_journaled=is_journaled)] += 1
            if (number + 1) % 100 == 0 or number + 1 == count:
                print(f"{number + 1} injections (seed {seed}): {dict(came_to)}; no duplicate, none lost", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), is_journaled="no-journal" not in sys.argv)
