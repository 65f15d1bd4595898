"""What stops a run from inside, and the exit code it leaves."""

from __future__ import annotations

from launcher.errors import ExitCode, LauncherError


class TrainingError(LauncherError):
    """Training cannot go on."""

    exit_code = ExitCode.RUN_FAILED
    code = "training"


class NotFiniteError(TrainingError):
    """The loss or the gradient is NaN or infinite; raised before the optimizer uses it."""

    code = "training.not_finite"


class CheckpointError(TrainingError):
    """A checkpoint cannot be written, or none can be read where one is required."""

    code = "training.checkpoint"


class SupersededError(CheckpointError):
    """Another attempt of the run has taken over its checkpoints."""

    code = "training.superseded"
