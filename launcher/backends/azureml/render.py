"""A job in Azure ML's own words: the official command job, as plain values. No SDK, no network.

Format: MicrosoftDocs azure-ai-docs ``reference-yaml-job-command.md`` (read 2026-11-30); ``az ml job create -f`` takes
it as it is. Azure ML starts one process per GPU and sets their rank variables (``distribution: pytorch``); no second
launcher runs inside. The service fills in ``${{inputs.x}}`` and ``${{outputs.x}}`` in ``command`` alone, so they stand
nowhere else.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from launcher.backends.azureml import nccl
from launcher.backends.azureml.mounts import RUN_OUTPUT
from launcher.backends.azureml.options import options_of
from launcher.backends.azureml.sizes import shared_memory, size_of
from launcher.job.names import experiment_name

if TYPE_CHECKING:
    from launcher.backends.azureml.options import Options
    from launcher.backends.azureml.yaml_text import Value
    from launcher.job.spec import JobSpec, Mount

SCHEMA = "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json"
CODE_FOLDER = "./code"
JOB_FILE = "./job.json"
_NOT_QUOTED = re.compile(r"(\$\{\{[^}]*\}\}|\$\[\[.*?\]\]|\$(?:NODE_RANK|MASTER_ADDR|MASTER_PORT)\b)")
_PLACEHOLDER = re.compile(r"\{(job|output|(?:input|output):[A-Za-z_]\w*)\}")
_UNNAMED = {"job": "job", "output": RUN_OUTPUT}
_IDENTITIES = {"job_token": "aml_token", "managed": "managed", "user": "user_identity"}

# Mount cache, MicrosoftDocs azure-ai-docs how-to-read-write-data-v2.md: the cache is unbounded unless told otherwise.
_KEEP_DISK_FREE = {"DATASET_MOUNT_CACHE_SIZE": "-10GB"}  # negative: leave this much of the disk
_READ_ONCE_IN_ORDER = {
    "DATASET_MOUNT_BLOCK_BASED_CACHE_ENABLED": "true",
    "DATASET_MOUNT_BLOCK_FILE_CACHE_ENABLED": "false",
    "DATASET_MOUNT_MEMORY_CACHE_SIZE": "0",
    "DATASET_MOUNT_READ_BUFFER_BLOCK_COUNT": "80",
}
_READ_AT_RANDOM = {"DATASET_MOUNT_BLOCK_BASED_CACHE_ENABLED": "false"}


def command_job(
    job: JobSpec,
    *,
    environment: str,
    code: str = CODE_FOLDER,
    job_file: str = JOB_FILE,
    topology_in_image: bool = False,
    properties: dict[str, str] | None = None,
) -> dict[str, Value]:
    """The command job that runs ``job``, keys in the order of the reference page.

    Args:
        job: What shall run; ``checks.check`` has passed it.
        environment: ``azureml:NAME:VERSION``, or a container image.
        code: Where the staged code is: a folder beside the file, or the id of a registered code asset.
        job_file: Where ``job.json`` is.
        topology_in_image: Whether the image holds the NCCL topology files.
        properties: Immutable facts to keep with the job; the intent's fingerprint is one.
    """
    options = options_of(job)
    sections: dict[str, Value | None] = {
        "$schema": SCHEMA,
        "type": "command",
        "name": job.name,
        "display_name": job.display_name,
        "experiment_name": experiment_name(job.experiment),
        "tags": dict(sorted(job.tags.items())),
        "properties": dict(sorted((properties or {}).items())),
        "code": code,
        "command": command_text(job),
        "environment": environment if environment.startswith(("azureml:", "/")) else {"image": environment},
        "environment_variables": environment_variables(job, topology_in_image=topology_in_image),
        "inputs": _inputs(job, job_file),
        "outputs": _outputs(job),
        "compute": f"azureml:{job.compute.removeprefix('azureml:')}" if job.compute else None,
        "distribution": {"type": "pytorch", "process_count_per_instance": _processes_per_node(job, options)},
        "resources": _resources(job, options),
        "queue_settings": _queue_settings(job, options),
        "limits": {"timeout": job.timeout_seconds} if job.timeout_seconds else None,
        "identity": {"type": _IDENTITIES[options.identity]} if options.identity else None,
        "services": _services(options),
    }
    return {name: value for name, value in sections.items() if value not in (None, {})}


def command_text(job: JobSpec) -> str:
    """The shell command of every process; Azure ML fills in ``${{...}}``, the shell torchrun's ``$VARIABLES``."""
    argv = [_PLACEHOLDER.sub(_template, argument) for argument in job.command]
    head = _torchrun(job) if options_of(job).per_node_launcher else ""
    return head + " ".join(_quoted(argument) for argument in (argv[1:] if head else argv))


def environment_variables(job: JobSpec, *, topology_in_image: bool) -> dict[str, str]:
    """What every process sees: the VM size's communication settings, the mount cache's, then the recipe's own."""
    communication = nccl.variables(size_of(job), topology_in_image=topology_in_image)
    return dict(sorted((communication | _mount_cache(job) | job.environment_variables).items()))


def _template(match: re.Match[str]) -> str:
    """``{job}`` -> ``${{inputs.job}}``, ``{output}`` -> ``${{outputs.run}}``, ``{input:x}`` -> ``${{inputs.x}}``."""
    word, _, name = match[1].partition(":")
    return (
        f"${{{{{'outputs' if word == 'output' else 'inputs'}.{name or {'job': 'job', 'output': RUN_OUTPUT}[word]}}}}}"
    )


def _quoted(argument: str) -> str:
    """``argument`` for the shell, except what the service (``${{...}}``) or the shell (``$NODE_RANK``) fills in."""
    if argument == "":
        return "''"
    parts = _NOT_QUOTED.split(argument)
    return "".join(part if _NOT_QUOTED.fullmatch(part) else shlex.quote(part) for part in parts if part)


def _torchrun(job: JobSpec) -> str:
    """One torchrun per node in place of ``python``: NVIDIA-NeMo/Run issue 130 has the form for Azure ML."""
    if job.nodes == 1:
        return f"torchrun --standalone --nproc_per_node {job.processes_per_node} "
    return (
        f"torchrun --nnodes {job.nodes} --nproc_per_node {job.processes_per_node} --node_rank $NODE_RANK "
        "--master_addr $MASTER_ADDR --master_port $MASTER_PORT "
    )


def _processes_per_node(job: JobSpec, options: Options) -> int:
    return 1 if options.per_node_launcher else job.processes_per_node


def _mount_cache(job: JobSpec) -> dict[str, str]:
    if not any(mount.mode == "ro_mount" for mount in job.inputs.values()):
        return {}
    options = options_of(job)
    if options.has_own_script:  # how it reads is its own affair
        return _KEEP_DISK_FREE
    return _KEEP_DISK_FREE | (_READ_AT_RANDOM if options.reads_at_random else _READ_ONCE_IN_ORDER)


def _inputs(job: JobSpec, job_file: str) -> dict[str, Value]:
    document: dict[str, Value] = {"job": {"type": "uri_file", "path": job_file, "mode": "download"}}
    return (document if _reads_job_file(job) else {}) | {
        name: _mount(mount) for name, mount in sorted(job.inputs.items())
    }


def _reads_job_file(job: JobSpec) -> bool:
    return any("{job}" in argument for argument in job.command)


def _outputs(job: JobSpec) -> dict[str, Value]:
    return {name: _mount(mount) for name, mount in sorted(job.outputs.items())}


def _mount(mount: Mount) -> dict[str, Value]:
    return {"type": mount.kind, "path": mount.path, "mode": mount.mode}


def _resources(job: JobSpec, options: Options) -> dict[str, Value]:
    """A named AmlCompute has its VM size already; serverless and Kubernetes compute must be told one."""
    sizes = {"instance_type": options.kubernetes_instance_type or job.instance_type}
    is_told = job.compute is None or options.kubernetes_instance_type is not None
    return {"instance_count": job.nodes, **(sizes if is_told else {}), "shm_size": shared_memory(job)}


def _queue_settings(job: JobSpec, options: Options) -> dict[str, Value]:
    """Serverless compute takes Spot and Standard; on a named cluster the tier is the cluster's own."""
    tier = {} if job.compute else {"job_tier": "Spot" if job.tier == "spot" else "Standard"}
    return {**tier, **({"priority": options.priority} if options.priority else {})}


def _services(options: Options) -> dict[str, Value]:
    extra = {
        "ssh": {"ssh_public_keys": options.ssh_public_key or ""},
        "tensor_board": {"log_dir": "outputs/tensorboard"},
    }
    return {name: {"type": name, "nodes": "all", **extra.get(name, {})} for name in options.services}
