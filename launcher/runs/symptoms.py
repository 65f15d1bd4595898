"""What breaks distributed training on Azure, how it sounds, and what to do next: a table.

Texts are those of the sources named: the services' and libraries' own words in public issues
(MachineLearningNotebooks, azure-docs, pytorch, NCCL, DeepSpeed), read 2026-11-30. Where no text was found, the pattern
is loose and says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "capacity", "quota", "sign_in", "image", "data", "gpu_memory", "host_memory", "disk", "nccl", "rendezvous", "hang",
    "nan", "preempted", "timeout", "canceled", "plan", "user_code", "service", "running", "completed", "unknown",
]  # fmt: skip
INFRASTRUCTURE: frozenset[Kind] = frozenset({"capacity", "preempted", "nccl", "rendezvous", "hang", "service"})
"""Kinds that another attempt may outlive: the nodes', the network's or the service's fault, not the code's."""


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """One way to break."""

    kind: Kind
    pattern: re.Pattern[str]
    what: str
    """One sentence."""
    next: tuple[str, ...]
    """What to do, most promising first."""


def _symptom(kind: Kind, pattern: str, what: str, *following: str) -> Symptom:
    return Symptom(kind=kind, pattern=re.compile(pattern), what=what, next=following)


OF_THE_SERVICE: tuple[Symptom, ...] = (
    _symptom(
        "preempted",
        r"(?i)preempt|evicted|low.?priority node",
        "spot nodes were taken away",
        "launcher watch --resubmit 2 HANDLE     the next attempt resumes from the newest checkpoint",
        "cluster.tier=dedicated     when the deadline matters more than the price",
    ),
    _symptom(
        "quota",
        r"(?i)CoreQuota|quota|ClusterQuotaReached",
        "the subscription's quota does not allow that many cores",
        "launcher gpus     shows what is left of each family",
        "fewer nodes (cluster.instance_count), or ask for quota: portal, Quotas, Machine learning",
    ),
    _symptom(
        "capacity",
        # AllocationFailed inside Azure ML was not found in any source: matched loosely.
        r"(?i)allocation ?failed|overconstrained|insufficient capacity|out of capacity|could not allocate",
        "the region has no such nodes free now",
        "launcher watch --resubmit 2 HANDLE",
        "another region or size; a cluster with min_instances > 0 keeps its nodes",
    ),
    _symptom(
        "timeout",
        r"(?i)JobTimedOut|exceeded its time limit|timed? ?out limit",
        "the run was ended at limits.timeout_hours",
        "launcher submit --resume HANDLE limits.timeout_hours=...     continues from the newest checkpoint",
    ),
    _symptom(
        "image",
        r"(?i)manifest unknown|pull access denied|ImagePull|failed to pull|image build|docker build|InvalidImage"
        r"|unauthorized: authentication required",
        "the container image cannot be built or pulled",
        "launcher doctor     checks the registry",
        "environment.image=REGISTRY/NAME@sha256:...     an image that is there, and a compute identity with AcrPull",
    ),
    _symptom(
        "data",
        r"data-capability|DataAccessError|UriMountSession|PyFuseError|StreamAccess|DatasetMount",
        "an input could not be mounted or downloaded",
        "check the path in the studio, and that cluster.identity may read it (Storage Blob Data Reader)",
        "folders are mounted from azureml://datastores/NAME/paths/..., not from https://ACCOUNT.blob...",
    ),
    _symptom(
        "sign_in",
        r"AuthorizationFailed|AADSTS\d+|does not have authorization|AuthenticationFailed",
        "the job's identity is not allowed to do what it does",
        "cluster.identity=managed, and give the compute's identity the role",
    ),
    _symptom(
        "service",
        r"SystemError|InternalServerError|ServiceError",
        "the service itself failed",
        "launcher watch --resubmit 2 HANDLE",
    ),
)

OF_THE_RANKS: tuple[Symptom, ...] = (
    _symptom(
        "gpu_memory",
        r"OutOfMemoryError|CUDA out of memory|HIP out of memory|CUBLAS_STATUS_ALLOC_FAILED|Rem Allocator",
        "a GPU ran out of memory",
        "launcher plan     compare memory.bytes_per_gpu with what the log says was in use",
        "training.micro_batch_size smaller, or training.activation_checkpointing=full",
        "parallelism.zero_stage=3, or more tensor parallelism",
    ),
    _symptom(
        "host_memory",
        r"Bus error|unable to open shared memory|No space left on device.*/dev/shm",
        "shared memory ran out: loader workers died of a bus error",
        "cluster.shm_size larger, or data.num_workers smaller",
    ),
    _symptom(
        "host_memory",
        r"oom-kill|Out of memory: Kill|DefaultCPUAllocator: (?:can't|not enough)|MemoryError|Cannot allocate memory",
        "the node ran out of memory",
        "parallelism.offload_optimizer=none, fewer loader workers, or a VM size with more memory",
    ),
    _symptom(
        "disk",
        r"No space left on device|\[Errno 28\]|Disk quota exceeded",
        "a disk is full",
        "DATASET_MOUNT_CACHE_SIZE in environment.variables bounds the cache of mounted data",
        "checkpoint.keep smaller",
    ),
    _symptom(
        "nan",
        r"NotFiniteError|loss (?:on this rank )?is (?:nan|inf)|gradient's norm is (?:nan|inf)|minimum loss scale",
        "the loss or gradient is not a number",
        "training.optimizer.learning_rate smaller, or a longer training.schedule.warmup_steps",
        "training.precision=bf16 instead of fp16",
        "the sequences named in the log may be bad data",
    ),
    _symptom(
        "plan",
        r"is not the plan that was submitted|ranks were planned and|training\.plan_digest|training\.world_size",
        "the job is not the one that was planned",
        "submit again with the launcher that runs in the job; one process per GPU",
    ),
    _symptom(
        "nccl",
        r"Duplicate GPU detected|invalid device ordinal|XML Import Channel|MNNVL .* not working"
        r"|NET/IB : No device found|ncclSystemError|ncclInternalError|ncclUnhandledCudaError|NCCL error",
        "NCCL failed: network, GPUs or their topology",
        "NCCL_DEBUG=INFO in environment.variables, and look for NET/IB and NET/Socket",
        "an image with the InfiniBand userland (environment.name=cuda); one process per GPU",
        "launcher watch --resubmit 2 HANDLE     when a node is bad",
    ),
    _symptom(
        "hang",
        r"Watchdog caught collective operation timeout|collective operation timeout|no progress for|heartbeat timeout"
        r"|Timeout waiting for key|wait timeout after|barrier timed out",
        "ranks waited for each other in vain",
        "the rank without a traceback, or with another stack than the rest, is the slow or dead one",
        "launcher watch --resubmit 2 HANDLE     when a node is bad",
    ),
    _symptom(
        "rendezvous",
        r"Address already in use|EADDRINUSE|DistNetworkError|Connection refused.*(?:29500|6105)"
        r"|LOCAL_RANK \(\d+\) != OMPI",
        "the ranks did not find each other",
        "take MASTER_ADDR and MASTER_PORT from the environment, and start no launcher inside the job",
    ),
    _symptom(
        "image",
        r"exec format error|CUDA driver version is insufficient|no kernel image is available",
        "the image does not fit the machine",
        "environment.name=cuda_arm64 on GB200 and GB300, cuda elsewhere",
    ),
    _symptom(
        "data",
        r"FileNotFoundError: .*(?:cap/data|INPUT_|\.idx|\.bin|\.jsonl|\.parquet)|DataAccessError|Input/output error",
        "data the ranks expect is not there",
        "check data.train; of Megatron shards both .bin and .idx are needed",
    ),
)
