"""What Azure ML, or its SDK, would take and then do wrong: refused here, every fault at once, before any call.

``azure.ai.ml.load_job`` checks the schema only; it lets pass a missing compute, an undeclared ``${{inputs.x}}``, a bad
``shm_size``, an asset without a version (azure-ai-ml 1.35.2, tried 2026-11-30). What follows from the recipe alone
(layout, memory, InfiniBand) is the plan's business and is found there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launcher.backends.azureml import environments
from launcher.backends.azureml.mount_checks import is_versioned, mount_faults
from launcher.backends.azureml.options import options_of
from launcher.backends.azureml.sizes import size_of
from launcher.errors import Fault, PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.job.spec import JobSpec

_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}")
_SHM_SIZE = re.compile(r"[1-9]\d*[bkmg]")
_MOST_TAGS, _LONGEST_TAG_NAME, _LONGEST_TAG_VALUE = 50, 100, 1000  # azure-ai-docs resource-limits-capacity.md
_LIFETIME_DAYS = {"dedicated": 21, "spot": 7}  # azure-ai-docs how-to-manage-quotas.md, read 2026-11-30
_SET_BY_AZURE = ("MASTER_ADDR", "MASTER_PORT")


def check(job: JobSpec) -> None:
    """Raise PlanError with everything about ``job`` that Azure ML would get wrong."""
    checks = (
        _name,
        _size,
        _software,
        _compute,
        _variables,
        mount_faults,
        _shm,
        _tags,
        _time,
        _ssh,
    )
    faults = tuple(fault for one in checks for fault in one(job))
    if faults:
        raise PlanError(faults)


def _name(job: JobSpec) -> Iterator[Fault]:
    if not _JOB_NAME.fullmatch(job.name):
        yield Fault(
            what=f"{job.name!r} cannot name an Azure ML job",
            keys=("name",),
            allowed="up to 255 letters, digits, _ and -, beginning with a letter or digit",
            code="azureml.name",
        )


def _size(job: JobSpec) -> Iterator[Fault]:
    size = size_of(job)
    if size.is_local:
        yield Fault(
            what=f"{size.name} is this machine, not a VM size of Azure",
            keys=("cluster.instance_type", "cluster.backend"),
            suggestion="cluster=azureml_cpu, or cluster.backend=local",
            code="azureml.instance_type",
        )
    if size.gpus and job.processes_per_node > size.gpus:
        yield Fault(
            what=f"process_count_per_instance={job.processes_per_node} on {size.name}, which has "
            f"{size.gpus} GPU{'s' * (size.gpus > 1)} per node ({job.processes_per_node} > {size.gpus})",
            keys=("cluster.processes_per_instance", "cluster.instance_type"),
            allowed=f"1 to {size.gpus} processes per node",
            suggestion=f"cluster.processes_per_instance={size.gpus} cluster.instance_count="
            f"{max(1, job.nodes * job.processes_per_node // size.gpus)}",
            code="azureml.processes",
        )
    if size.status == "retired":
        yield Fault(
            what=f"Azure retired {size.name}" + (f" on {size.status_since}" if size.status_since else ""),
            keys=("cluster.instance_type",),
            code="azureml.retired",
        )


def _software(job: JobSpec) -> Iterator[Fault]:
    if job.environment_asset:
        if not is_versioned(job.environment_asset) and not job.environment_asset.startswith("azureml://"):
            yield Fault(
                what=f"{job.environment_asset!r} does not name a version of an environment",
                keys=("environment.asset",),
                allowed="azureml:NAME:VERSION or azureml:NAME@latest",
                suggestion=f"environment.asset=azureml:{job.environment_asset.removeprefix('azureml:')}@latest",
                code="azureml.environment_version",
            )
        return
    if job.image:
        return
    size, software = size_of(job), environments.definition(job.environment_name)
    if size.gpus and software.device == "cpu":
        yield Fault(
            what=f"environment {software.name} has no CUDA, and {size.name} has GPUs",
            keys=("environment.name", "cluster.instance_type"),
            suggestion=f"environment.name={'cuda' if size.architecture == 'x86_64' else 'cuda_arm64'}",
            code="azureml.environment_device",
        )
    elif software.architecture != size.architecture:
        yield Fault(
            what=f"environment {software.name} is built for {software.architecture}, and {size.name} is "
            f"{size.architecture} (an image of another architecture ends in 'exec format error')",
            keys=("environment.name", "cluster.instance_type"),
            suggestion=f"environment.name={'cuda_arm64' if size.architecture == 'aarch64' else 'cuda'}",
            code="azureml.architecture",
        )


def _compute(job: JobSpec) -> Iterator[Fault]:
    options = options_of(job)
    if job.compute and job.compute.removeprefix("azureml:") == "local":
        yield Fault(
            what="compute 'local' is not a compute target of Azure ML",
            keys=("cluster.compute", "cluster.backend"),
            suggestion="cluster.backend=local runs the same recipe on this machine",
            code="azureml.compute_local",
        )
    if options.kubernetes_instance_type and not job.compute:
        yield Fault(
            what="a Kubernetes instance type needs the compute target it belongs to",
            keys=("cluster.kubernetes_instance_type", "cluster.compute"),
            suggestion="cluster.compute=NAME",
            code="azureml.kubernetes_compute",
        )


def _variables(job: JobSpec) -> Iterator[Fault]:
    for name, value in job.environment_variables.items():
        key = f"environment.variables.{name}"
        if "${{" in value:
            yield Fault(
                what=f"{name} holds a template, and templates work only in command: the container would see {value!r}",
                keys=(key,),
                suggestion=f"pass {value} in entry.arguments",
                code="azureml.variable_template",
            )
        if name in _SET_BY_AZURE:
            yield Fault(
                what=f"Azure ML sets {name}; a second value sends ranks to different places",
                keys=(key,),
                suggestion="another port for side groups under another name",
                code="azureml.variable_rendezvous",
            )
        if name == "NCCL_IB_DISABLE" and value == "1" and size_of(job).has_infiniband and job.nodes > 1:
            yield Fault(
                what=f"NCCL_IB_DISABLE=1 would leave the InfiniBand of {job.instance_type} unused between "
                f"{job.nodes} nodes",
                keys=(key, "cluster.instance_count"),
                suggestion=f"remove {key}",
                code="azureml.infiniband_disabled",
            )


def _shm(job: JobSpec) -> Iterator[Fault]:
    if job.shm_size and not _SHM_SIZE.fullmatch(job.shm_size):
        yield Fault(
            what=f"{job.shm_size!r} is not an amount of shared memory",
            keys=("cluster.shm_size",),
            allowed="a whole number and b, k, m or g: 64g",
            code="azureml.shm_size",
        )


def _tags(job: JobSpec) -> Iterator[Fault]:
    if len(job.tags) > _MOST_TAGS:
        yield Fault(
            what=f"{len(job.tags)} tags; Azure ML keeps {_MOST_TAGS}",
            keys=("tags",),
            code="azureml.tags",
        )
    for name, value in job.tags.items():
        if len(name) > _LONGEST_TAG_NAME or len(value) > _LONGEST_TAG_VALUE:
            yield Fault(
                what=f"tag {name[:40]} is {len(name)} + {len(value)} characters long",
                keys=(f"tags.{name}",),
                allowed=f"{_LONGEST_TAG_NAME} for the name, {_LONGEST_TAG_VALUE} for the value",
                code="azureml.tags",
            )


def _time(job: JobSpec) -> Iterator[Fault]:
    days = _LIFETIME_DAYS[job.tier]
    if job.timeout_seconds and job.timeout_seconds > days * 86400:
        yield Fault(
            what=f"Azure ML ends a {job.tier} job after {days} days; limits.timeout_hours asks for "
            f"{job.timeout_seconds / 86400:.1f}",
            keys=("limits.timeout_hours", "cluster.tier"),
            allowed=f"up to {days * 24} hours; a longer run is chained from its checkpoints",
            suggestion=f"limits.timeout_hours={days * 24}",
            code="azureml.lifetime",
        )


def _ssh(job: JobSpec) -> Iterator[Fault]:
    options = options_of(job)
    if "ssh" in options.services and not options.ssh_public_key:
        yield Fault(
            what="the ssh service needs a public key that may enter",
            keys=("cluster.ssh_public_key", "cluster.services"),
            suggestion="cluster.ssh_public_key='ssh-ed25519 ...'",
            code="azureml.ssh_key",
        )
