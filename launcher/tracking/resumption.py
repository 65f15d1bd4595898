"""How a resumed job goes on in the MLflow run of the job it resumes: with its run id, and with its rows."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from launcher.tracking.spool import METRICS_FILE

RUN_FILE = "mlflow_run.json"
"""In the output folder: ``{"uri", "run_id", "sent_bytes"}``: the run, and how much of the spool it has."""

log = logging.getLogger(__name__)


def inherit(output: Path, resume_from: str | None) -> None:
    """Copy spool and run file of the job that wrote ``resume_from`` (its checkpoints) to a fresh ``output``.

    An output folder that has a spool already, of an earlier start of the same job, is left alone. Checkpoints kept
    outside their run's output folder lead nowhere: such a job begins a run of its own.
    """
    parent = _output_of(Path(resume_from)) if resume_from else None
    if parent is None or parent == output.resolve() or (output / METRICS_FILE).exists():
        return
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name in (RUN_FILE, METRICS_FILE):
            if (parent / name).exists():
                shutil.copyfile(parent / name, output / name)
    except OSError as refusal:
        log.warning("metrics of %s cannot be copied (%s); this attempt begins a curve of its own", parent, refusal)


def _output_of(checkpoints: Path) -> Path | None:
    """The output folder around a folder of checkpoints, or around one checkpoint."""
    around = checkpoints.resolve().parents[:2]
    return next((folder for folder in around if (folder / METRICS_FILE).exists()), None)
