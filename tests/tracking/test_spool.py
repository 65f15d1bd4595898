from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from launcher.tracking.spool import Row, Spool, all_rows, encode, read_rows, rows_after

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, *, attempt: int, steps: range, loss: float = 1.0) -> None:
    spool = Spool(path, attempt=attempt)
    for step in steps:
        spool.append(step, {"loss": loss})
    spool.close()


def test_a_row_is_one_line_of_json_and_read_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    row = Spool(path).append(7, {"loss": 2.5, "learning_rate": 1e-4})

    line = path.read_text()
    assert json.loads(line)["metrics"] == {"loss": 2.5, "learning_rate": 1e-4}
    assert line.count("\n") == 1
    [read] = read_rows(path)
    assert (read.step, read.attempt, read.metrics) == (7, 1, row.metrics)
    assert abs(read.time - time.time()) < 60


def test_numbers_that_json_lacks_are_read_back_from_lines_that_are_json(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    Spool(path).append(1, {"loss": math.nan, "gradient_norm": math.inf, "x": -math.inf})

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    json.loads(path.read_text(), parse_constant=refuse)
    [row] = read_rows(path)
    assert math.isnan(row.metrics["loss"])
    assert (row.metrics["gradient_norm"], row.metrics["x"]) == (math.inf, -math.inf)


def test_a_torn_last_line_is_skipped_and_the_next_attempt_writes_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, attempt=1, steps=range(1, 4))
    path.write_bytes(path.read_bytes()[:-20])

    assert [row.step for row in read_rows(path)] == [1, 2]
    write(path, attempt=2, steps=range(3, 5))
    assert [(row.step, row.attempt) for row in read_rows(path)] == [(1, 1), (2, 1), (3, 2), (4, 2)]


@pytest.mark.parametrize(
    "line", [b"[1, 2]", b"null", b'{"step": 1}', b'{"step": "x", "time": 1, "metrics": {}}', b"\xff"]
)
def test_a_line_that_is_no_row_is_skipped(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line + b"\n" + encode(Row(step=1, time=0.0, attempt=1, metrics={"loss": 1.0})))

    assert [row.step for row in read_rows(path)] == [1]


def test_no_step_counts_twice_after_a_resume(tmp_path: Path) -> None:
    # attempt 1 reaches step 35 with a checkpoint at 30; attempt 2 goes on at 31 and dies at 33; attempt 3 at 31 again
    path = tmp_path / "metrics.jsonl"
    write(path, attempt=1, steps=range(1, 36), loss=1.0)
    write(path, attempt=2, steps=range(31, 34), loss=2.0)
    write(path, attempt=3, steps=range(31, 41), loss=3.0)

    rows = read_rows(path)
    assert [row.step for row in rows] == list(range(1, 41))
    assert [row.attempt for row in rows] == [1] * 30 + [3] * 10


def test_what_came_after_the_checkpoint_is_superseded_before_the_new_attempt_logs_anything(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, attempt=1, steps=range(1, 36))
    Spool(path).append(31, {})

    assert [row.step for row in read_rows(path)][-1] == 30


def test_every_start_is_a_new_attempt_even_when_the_job_calls_it_the_same(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, attempt=1, steps=range(1, 3))
    write(path, attempt=1, steps=range(2, 3))

    assert [(row.step, row.attempt) for row in read_rows(path)] == [(1, 1), (2, 2)]
    assert Spool(path, attempt=7).attempt == 7


def test_training_and_evaluation_of_one_step_are_one_row(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    spool = Spool(path)
    spool.append(5, {"loss": 3.0})
    spool.append(5, {"evaluation_loss": 3.5})

    [row] = read_rows(path)
    assert row.metrics == {"loss": 3.0, "evaluation_loss": 3.5}


def test_a_reader_that_comes_back_gets_each_row_once_and_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert rows_after(path, 0) == ((), 0)
    write(path, attempt=1, steps=range(1, 3))
    first, offset = rows_after(path, 0)
    whole = encode(Row(step=3, time=0.0, attempt=1, metrics={"loss": 1.0}))
    with path.open("ab") as file:
        file.write(whole[:10])
    assert rows_after(path, offset) == ((), offset)
    with path.open("ab") as file:
        file.write(whole[10:])
    second, end = rows_after(path, offset)

    assert [row.step for row in first + second] == [1, 2, 3]
    assert end == path.stat().st_size


FULL_DISK = """
import logging, resource, signal, sys
from pathlib import Path
from launcher.tracking.spool import Spool, read_rows
logging.basicConfig(format="%(message)s")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
path = Path(sys.argv[1])
spool = Spool(path)
limit(250)                                       # the file may grow to 250 bytes: the third row is torn
for step in range(1, 11):
    spool.append(step, {"loss": 1.0})
print("full:", [row.step for row in read_rows(path)], len(spool.unwritten))
limit(resource.RLIM_INFINITY)                    # room again
spool.append(11, {"loss": 1.0})
print("room:", [row.step for row in read_rows(path)], len(spool.unwritten))
"""


def test_a_full_disk_is_told_once_and_rows_wait_for_room(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "metrics.jsonl")], capture_output=True, text=True, check=True
    )

    # a row like these is 74 bytes: {"step": 1, "time": 1796089517.339, "attempt": 1, "metrics": {"loss": 1.0}}
    assert done.stdout.splitlines() == ["full: [1, 2, 3] 7", f"room: {list(range(1, 12))} 0"]
    assert done.stderr.count("training goes on") == 1


def test_a_folder_that_cannot_be_made_does_not_stop_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    spool = Spool(tmp_path / "file" / "metrics.jsonl")
    spool.append(1, {"loss": 1.0})
    spool.append(2, {"loss": 1.0})

    assert caplog.text.count("training goes on") == 1
    assert len(spool.unwritten) == 2


def test_a_row_costs_a_step_less_than_ten_milliseconds(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "metrics.jsonl")
    metrics = {f"metric_{index}": index / 7 for index in range(16)}
    seconds = []
    for step in range(2000):
        began = time.perf_counter()
        spool.append(step, metrics)
        seconds.append(time.perf_counter() - began)

    assert sorted(seconds)[1980] < 0.010  # the 99th of a hundred
    assert len(all_rows(spool.path)) == 2000
