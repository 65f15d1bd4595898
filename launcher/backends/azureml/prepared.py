"""A job made ready to be sent: checked, staged, named and rendered. No network, no SDK."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.backends.azureml import checks, environments, nccl
from launcher.backends.azureml.mounts import with_mounts
from launcher.backends.azureml.render import command_job
from launcher.backends.azureml.sizes import size_of
from launcher.backends.azureml.submission import FINGERPRINT
from launcher.backends.azureml.yaml_text import to_yaml
from launcher.errors import BackendError
from launcher.job.build import intent
from launcher.job.stage import stage_code
from launcher.recipe.codec import decode
from launcher.recipe.redact import redact

if TYPE_CHECKING:
    from launcher.backends.azureml.yaml_text import Value
    from launcher.job.spec import JobSpec
    from launcher.job.stage import Staged


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything of a submission but the network."""

    job: JobSpec
    staged: Staged
    fingerprint: str
    """Digest of the intent and the environment, 64 hex digits."""
    environment: str
    """Reference of a registered environment, or an image."""
    definition: environments.Definition | None
    """Of our own environment, which may have to be registered first."""

    def document(self) -> dict[str, Value]:
        """The command job as it is shown: code, environment and job.json under the names they have here."""
        return command_job(self.job, environment=self.environment, **self._always())

    def document_to_send(self, *, code: str, environment: str, job_file: str) -> dict[str, Value]:
        """The command job as it is sent: code, environment and job.json where they are in the workspace."""
        job = replace(self.job, tags=self.job.tags | {"environment": environment})
        return command_job(job, environment=environment, code=code, job_file=job_file, **self._always())

    def text(self) -> str:
        """The command job as YAML, notes first, with secret values taken out."""
        shown: dict[str, Any] = redact(self.document())
        return "".join(f"# note: {note}\n" for note in self.notes()) + to_yaml(shown)

    def notes(self) -> tuple[str, ...]:
        """What is left out of the job because it cannot be known to be there."""
        size = size_of(self.job)
        if self.job.nodes == 1 or self._holds_topology or not nccl.wants_topology(size):
            return ()
        return (
            f"NCCL_TOPO_FILE is not set: {self.environment} may not hold the topology of {size.name}, and without it "
            "NCCL pairs GPUs and network cards badly; if it does, set it in environment.variables",
        )

    @property
    def _holds_topology(self) -> bool:
        return self.definition is not None and self.definition.topology_folder is not None

    def _always(self) -> dict[str, Any]:
        return {"topology_in_image": self._holds_topology, "properties": {FINGERPRINT: self.fingerprint}}


def prepare(job: JobSpec) -> Prepared:
    """Check, stage and name ``job``.

    Raises:
        PlanError: Azure ML would get it wrong, or the code holds a secret.
        BackendError: the code has changed since the job was named.
    """
    job = with_mounts(job)
    checks.check(job)
    definition = None if job.image or job.environment_asset else environments.definition(job.environment_name)
    environment = job.image or job.environment_asset or (definition.reference if definition else "")
    return Prepared(
        job=job,
        staged=_staged(job),
        fingerprint=_fingerprint(job, environment),
        environment=environment,
        definition=definition,
    )


def _staged(job: JobSpec) -> Staged:
    """The code, which must be what the job's name was made from."""
    snapshot, entry = job.snapshot, decode(job.document["recipe"]).entry
    staged = stage_code(Path(snapshot.root), entry, allowed_secrets=frozenset(snapshot.allowed_secrets))
    if snapshot.digest not in (None, staged.digest):
        raise BackendError(
            f"the code changed since the job was named: {snapshot.digest[:12]} then, {staged.digest[:12]} now",
            suggestion="submit again",
            code="azureml.code_changed",
        )
    return staged


def _fingerprint(job: JobSpec, environment: str) -> str:
    """The same for everybody who asks for the same thing: names, descriptions and tags are no part of it."""
    asked = intent(decode(job.document["recipe"]), job.snapshot)
    return hashlib.sha256(f"{asked} {environment}".encode()).hexdigest()
