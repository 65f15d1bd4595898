"""Where a person can look at a run: pages and folders."""

from __future__ import annotations

from launcher.backends import parse_handle


def links(handle: str) -> dict[str, str]:
    """What it is -> its address: ``studio`` and ``mlflow`` of a run on Azure ML, ``folder`` of a local one.

    Raises:
        NoSuchRunError: there is no such run.
    """
    if parse_handle(handle)[0] == "local":
        from launcher.backends.local.backend import run_folder

        return {"folder": run_folder(handle).path.as_uri()}
    from launcher.backends.azureml.backend import AzureMLBackend

    return AzureMLBackend().links(handle)
