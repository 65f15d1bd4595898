"""Who and what the emulator pretends to be: names, quota, capacity and pace."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Literal

PROVIDER = "Microsoft.MachineLearningServices"
STORAGE_ACCOUNT = "devstoreaccount1"
STORAGE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's documented development key: no secret."""
BLOB_HOST = f"{STORAGE_ACCOUNT}.blob.core.windows.net"
MANAGEMENT_HOST = "management.azure.com"
REGISTRY_HOST = "mcr.microsoft.com"
SIGN_IN_HOST = "login.microsoftonline.com"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One emulated subscription with one workspace."""

    tenant: str = "00000000-0000-0000-0000-00000000aaaa"
    client_id: str = "00000000-0000-0000-0000-00000000bbbb"
    client_secret: str = "emulated"
    subscription: str = "00000000-0000-0000-0000-000000000001"
    resource_group: str = "emulated-group"
    workspace: str = "emulated-workspace"
    location: str = "westeurope"
    role: Literal["contributor", "none"] = "contributor"
    """What the signed-in principal may do in the workspace."""
    repeated_put: Literal["accepted", "immutable"] = "accepted"
    """What the second PUT of a job's name is told: the service is known to say either (see assumptions)."""
    storage_secret: Literal["key", "sas"] = "key"
    """What ``listSecrets`` of a datastore returns."""
    cores_by_family: dict[str, int] = field(default_factory=dict)
    """Quota in vCPUs; families not named have ``default_cores``."""
    default_cores: int = 20_000
    processes: int = 32
    """Processes of jobs this machine runs at once; a job that needs more stays Queued."""
    preparing_seconds: float = 0.1
    """How long building the image pretends to take."""
    notice_seconds: float = 30.0
    """Between the SIGTERM of a preemption or cancellation and the SIGKILL."""
    python: str = sys.executable
    """What ``python`` means in a job's command."""

    @property
    def workspace_path(self) -> str:
        """The workspace's resource id."""
        return (
            f"/subscriptions/{self.subscription}/resourceGroups/{self.resource_group}"
            f"/providers/{PROVIDER}/workspaces/{self.workspace}"
        )

    @property
    def data_plane(self) -> str:
        """Base of run history and its neighbours, as the workspace's discovery says it."""
        return f"https://{self.location}.api.azureml.ms"
