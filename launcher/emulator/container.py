"""What a process of a job sees: its command with templates filled in, its environment variables, its folders."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.emulator import tokens

if TYPE_CHECKING:
    from launcher.emulator.mounts import Mounts
    from launcher.emulator.settings import Settings
    from launcher.emulator.workspace import Job

_TEMPLATE = re.compile(r"\$\{\{\s*(inputs|outputs)\.(\w+)\s*\}\}")
_OPTIONAL = re.compile(r"\$\[\[(.*?)\]\]", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Folders:
    """The folders of one job on this machine."""

    root: Path

    def node(self, node: int) -> Path:
        """The working directory of a node: the code lies there."""
        return self.root / f"node-{node}" / "wd"

    def log(self, rank: int) -> Path:
        """What a rank prints."""
        return self.root / "logs" / f"{rank}.txt"


def bind(job: Job, mounts: Mounts) -> dict[str, dict[str, str]]:
    """Values of every input and output: ``{"inputs": {name: path or literal}, "outputs": {name: path}}``.

    Raises:
        NotThereError: an input leads to no data.
    """
    inputs = {name: _input(value, mounts) for name, value in (job.properties.get("inputs") or {}).items()}
    outputs = {
        name: str(mounts.show(output_uri(job, name, value), must_exist=False))
        for name, value in (job.properties.get("outputs") or {}).items()
        if name != "default"
    }
    return {"inputs": inputs, "outputs": outputs}


def output_uri(job: Job, name: str, value: dict[str, Any]) -> str:
    """Where an output goes: as asked, or where the service puts an output nobody placed."""
    return value.get("uri") or f"azureml://datastores/workspaceblobstore/paths/azureml/{job.name}/{name}"


def filled(command: str, bound: dict[str, dict[str, str]]) -> str:
    """``command`` with its templates filled in; an optional group is kept when all it names is there."""

    def keep(group: re.Match[str]) -> str:
        return group[1] if all(name in bound[kind] for kind, name in _TEMPLATE.findall(group[1])) else ""

    return _TEMPLATE.sub(lambda match: bound[match[1]].get(match[2], match[0]), _OPTIONAL.sub(keep, command))


def variables(
    job: Job, settings: Settings, *, rank: int, port: int, bound: dict[str, dict[str, str]], home: Path, mlflow_uri: str
) -> dict[str, str]:
    """The environment of one process; nothing of the emulator's own leaks into it, as into a container."""
    node, local_rank = divmod(rank, job.processes_per_node)
    world_size = job.nodes * job.processes_per_node
    return {
        "PATH": os.pathsep.join((str(home / "bin"), str(Path(settings.python).parent), "/usr/local/bin:/usr/bin:/bin")),
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // world_size)),
        "GLOO_SOCKET_IFNAME": "lo",  # all nodes are this machine, and its own name may not resolve
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "NODE_RANK": str(node),
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        **_service_variables(job, settings, rank=rank, node=node, mlflow_uri=mlflow_uri),
        **{f"AZURE_ML_INPUT_{name}": value for name, value in bound["inputs"].items()},
        **{f"AZURE_ML_OUTPUT_{name}": value for name, value in bound["outputs"].items()},
        **(job.properties.get("environmentVariables") or {}),
    }


def make_home(home: Path, python: str) -> None:
    """A home with ``python`` in it: whatever interpreter runs the emulator is the image's."""
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    (home / "bin").mkdir(exist_ok=True)
    for name in ("python", "python3"):
        script = home / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)


def _input(value: dict[str, Any], mounts: Mounts) -> str:
    if value.get("jobInputType") == "literal":
        return str(value.get("value"))
    return str(mounts.show(value["uri"]))


def _service_variables(job: Job, settings: Settings, *, rank: int, node: int, mlflow_uri: str) -> dict[str, str]:
    token = tokens.issue(audience="https://ml.azure.com", tenant=settings.tenant, subject=job.name)
    return {
        "AZUREML_RUN_ID": job.name,
        "AZUREML_ROOT_RUN_ID": job.name,
        "AZUREML_RUN_TOKEN": token,
        "AZUREML_EXPERIMENT_ID": job.properties["experimentName"],
        "AZUREML_ARM_SUBSCRIPTION": settings.subscription,
        "AZUREML_ARM_RESOURCEGROUP": settings.resource_group,
        "AZUREML_ARM_WORKSPACE_NAME": settings.workspace,
        "AZUREML_ARM_PROJECT_NAME": job.properties["experimentName"],
        "AZUREML_CR_NODE_RANK": str(node),
        "AZUREML_PROCESS_NAME": f"rank_{rank}",
        "AZUREML_COMPUTE_USE_COMMON_RUNTIME": "true",
        "AZ_BATCH_HOST_LIST": ",".join(["127.0.0.1"] * job.nodes),
        "AZ_BATCHAI_IS_CURRENT_NODE_MASTER": str(node == 0).lower(),
        "MLFLOW_TRACKING_URI": mlflow_uri,
        "MLFLOW_TRACKING_TOKEN": token,
        "MLFLOW_RUN_ID": job.name,
        "MLFLOW_EXPERIMENT_NAME": job.properties["experimentName"],
    }
