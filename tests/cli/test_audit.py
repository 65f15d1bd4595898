"""``launcher audit`` and ``launcher calibrate`` on tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

PUBLISHED = Path(__file__).parents[1] / "published"
TABLE = PUBLISHED / "fmsfsdp.csv"


def test_each_row_stands_beside_its_prediction(cli: Cli) -> None:
    document = cli("audit", TABLE, "--json").document

    (row,) = [row for row in document["rows"] if row["id"] == "fmsfsdp-000"]
    # fms-fsdp README: 7B, 128 A100, 2 x 4096 tokens a GPU at 4,550 tokens/s.
    assert row["measured_step_seconds"] == pytest.approx(2 * 4096 / 4550, rel=0.001)
    assert row["low_seconds"] < row["predicted_step_seconds"] < row["high_seconds"]
    assert row["calibration"] == "inside"
    assert document["summary"][-1]["group"] == "fmsfsdp"
    assert document["summary"][-1]["rows"] == 6


def test_the_table_reads_as_lines(cli: Cli) -> None:
    lines = cli("audit", TABLE).out.splitlines()

    assert lines[0].split()[:3] == ["row", "step", "measured"]
    assert lines[1].startswith("fmsfsdp-000         1.80 s")
    assert lines[-1].startswith("fmsfsdp")


def test_what_holds_no_runs_is_named_and_left_out(cli: Cli) -> None:
    outcome = cli("audit", "--summary", TABLE, PUBLISHED / "mlperf.csv")

    assert outcome.code == 0
    assert "mlperf.csv: holds no training runs: no column id, table, model" in outcome.out


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        (("absent.csv",), "absent.csv cannot be read"),
        ((PUBLISHED / "mlperf.csv",), "no row of"),
        (("mlflow:nobody",), "there is no MLflow experiment 'nobody'"),
    ],
)
def test_a_source_without_rows_is_refused(cli: Cli, sources: tuple[str | Path, ...], words: str) -> None:
    outcome = cli("audit", *sources)

    assert outcome.code == 2
    assert words in " ".join(outcome.err.split())


def test_constants_of_ones_own_change_the_plan_of_a_recipe_that_names_them(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "calibration" / "ours.yaml"
    found = cli("calibrate", TABLE, "--to", file, "--json").document
    words = ("plan", "llama2/7b", "--json")

    shipped = cli(*words).document
    ours = cli(*words, "calibration=ours", "--recipes", tmp_path).document

    assert found["median_error_after"] < found["median_error_before"]
    assert file.read_text().startswith("# Written by launcher calibrate from 6 runs of ")
    assert ours["time"]["step_seconds"] != shipped["time"]["step_seconds"]
    assert ours["memory"] == shipped["memory"]
    spread = ours["time"]["high_seconds"] / ours["time"]["step_seconds"]
    assert spread == pytest.approx(2.718281828 ** found["calibration"]["half_width"], rel=1e-4)


@pytest.mark.parametrize(
    ("word", "message", "suggestion"),
    [
        ("calibration.tensor_overlop=0.5", "there is no constant 'tensor_overlop'", "calibration.tensor_overlop=null"),
        ("calibration.tensor_overlap=1.5", "beyond 0 to 1 it makes no sense", "calibration.tensor_overlap=1"),
    ],
)
def test_a_constant_that_makes_no_sense_is_refused(cli: Cli, word: str, message: str, suggestion: str) -> None:
    (finding,) = cli("plan", "llama2/7b", word, "--json").document["findings"][:1]

    assert message in finding["message"]
    assert finding["edits"][0]["overrides"] == [suggestion]
