"""Azure ML: a job becomes the official command job, is sent once, followed, and fetched. The door to ``azure.*``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.backends.azureml.backend import AzureMLBackend


def open_backend() -> AzureMLBackend:
    """The backend of the workspace that the recipe, the environment or ``config.json`` names."""
    from launcher.backends.azureml.backend import AzureMLBackend

    return AzureMLBackend()
