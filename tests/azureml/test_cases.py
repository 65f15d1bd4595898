"""Reports of users of Azure ML and its tools, and what ours answers; each test names its case and the report.

Not here: A08 and A10 (what of the tree travels, ``tests/job/test_stage.py``), A17 (quota, ``test_workspace.py``), A24
(names, ``tests/job/test_build.py``), A31, H03, H05, H11 (``tests/cli``), L01 and A15's restart
(``tests/backends/test_local_training.py``). ``payload`` is what the real SDK has sent, as the emulator received it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from launcher.backends.azureml.backend import AzureMLBackend
from launcher.backends.azureml.environments import definition
from launcher.backends.azureml.patience import Patience
from launcher.backends.azureml.prepared import prepare
from launcher.catalog import vm_sizes
from launcher.compose.composer import compose
from launcher.compose.library import group_choices
from launcher.errors import LauncherError, PlanError
from launcher.job.build import build_job
from launcher.job.snapshot import take_snapshot
from launcher.job.stage import stage_code
from launcher.plan.planner import make_plan

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.job.spec import JobSpec
    from launcher.plan.plan import Plan
    from tests.emulated import Inside

pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
pytestmark = pytest.mark.usefixtures("quiet_sdk")

SMALL = ("gpt/tiny", "training.global_batch_size=2304", "training.micro_batch_size=1", "training.precision=fp32")
"""2304 sequences divide over 1, 2, 4, 8, 16 and 72 GPUs."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    return folder


def plan_of(*words: str) -> Plan:
    return make_plan(compose([*SMALL, *words]).recipe)


def job_of(root: Path, *words: str) -> JobSpec:
    recipe = compose([*SMALL, *words]).recipe
    snapshot = replace(take_snapshot(root), digest=stage_code(root, recipe.entry).digest)
    return build_job(recipe, make_plan(recipe), snapshot)


def payload(inside: Inside, root: Path, *words: str) -> dict[str, Any]:
    """The job's REST properties, from the recipe through the SDK to the service."""
    submission = AzureMLBackend(patience=Patience(backoff_seconds=0.02)).submit(job_of(root, *words))
    return inside.emulator.workspace.jobs[submission.handle.removeprefix("azureml:")].properties


def refused(*words: str) -> str:
    """Everything that is wrong with a recipe, before any call to Azure."""
    try:
        plan = plan_of(*words)
    except LauncherError as error:
        return "\n".join(f"{fault.what} {fault.allowed} {fault.suggestion}" for fault in error.faults)
    assert plan.errors, "nothing is refused"
    return "\n".join(f"{found.message} {found.allowed} {found.edits}" for found in plan.errors)


def test_two_nodes_of_eight_gpus_are_eight_processes_each(inside: Inside, root: Path) -> None:
    """A01: https://github.com/MicrosoftDocs/azure-docs/issues/111307: the docs said GPUs x nodes."""
    sent = payload(inside, root, "cluster=ndm_a100_v4", "cluster.instance_count=2")
    assert sent["resources"]["instanceCount"] == 2
    assert sent["distribution"] == {"distributionType": "PyTorch", "processCountPerInstance": 8}
    assert plan_of("cluster=ndm_a100_v4", "cluster.instance_count=2").topology.world_size == 16


def test_sixteen_processes_on_eight_gpus_are_refused_with_both_numbers() -> None:
    """A01: https://github.com/MicrosoftDocs/azure-docs/issues/111307."""
    said = refused("cluster=ndm_a100_v4", "cluster.instance_count=2", "cluster.processes_per_instance=16")
    assert "Standard_ND96amsr_A100_v4" in said
    assert "16" in said
    assert "8" in said


def test_two_processes_on_one_gpu_are_refused_with_a_way_out() -> None:
    """A03: https://github.com/Azure/azureml-examples/issues/675: NCCL then finds a duplicate GPU."""
    said = refused("cluster=nc24_a100_v4", "cluster.processes_per_instance=2")
    assert "Standard_NC24ads_A100_v4" in said
    assert "2" in said


def test_shared_memory_is_in_the_payload_as_asked_and_never_the_default(inside: Inside, root: Path) -> None:
    """A04: https://github.com/Azure/azure-cli-extensions/issues/6571: resources.shm_size was an unknown field."""
    asked = payload(inside, root, "cluster=nd_a100_v4", "cluster.instance_count=2", "cluster.shm_size=64g")
    assert asked["resources"]["shmSize"] == "64g"
    unasked = payload(inside, root, "cluster=nd_a100_v4", "training.seed=2")
    assert int(unasked["resources"]["shmSize"].removesuffix("g")) >= 16


def test_gpus_of_a_size_are_those_of_azures_pages_and_not_its_vcpus_over_eight() -> None:
    """A19: https://github.com/skypilot-org/skypilot-catalog/pull/50: 96 vCPUs made twelve H100s."""
    facts = {
        "Standard_ND96isr_H100_v5": (8, "H100-SXM-80GB", 96, 400),
        "Standard_ND96amsr_A100_v4": (8, "A100-SXM-80GB", 96, 200),
        "Standard_ND96asr_v4": (8, "A100-SXM-40GB", 96, 200),
        "Standard_NC80adis_H100_v5": (2, "H100-NVL-94GB", 80, None),
        "Standard_NC24ads_A100_v4": (1, "A100-PCIE-80GB", 24, None),
    }
    sizes = {name: vm_sizes.find(name) for name in facts}
    found = {
        name: (size.gpus, size.accelerator, size.vcpus, size.infiniband_gb_per_s_per_gpu)
        for name, size in sizes.items()
    }
    assert found == facts


def test_a_template_in_a_variable_is_refused_and_works_in_the_command(inside: Inside, root: Path) -> None:
    """A06: https://github.com/microsoft/physical-ai-toolchain/issues/855: checkpoints were silently never uploaded."""
    cpu = "cluster=azureml_cpu"
    assert "only in command" in refused(cpu, "environment.variables.CKPT_DIR='${{outputs.run}}'")
    script = ("entry.script=train.py", "entry.arguments=[--checkpoint-dir,'${{outputs.run}}']")
    sent = payload(inside, root, cpu, *script)
    assert sent["command"] == "python train.py --checkpoint-dir ${{outputs.run}}"
    assert not any("${{" in value for value in (sent.get("environmentVariables") or {}).values())


def test_environment_variables_are_text_as_a_shell_expects_it(inside: Inside, root: Path) -> None:
    """A07: https://github.com/Azure/azure-cli-extensions/issues/8475: the SDK sends raw booleans and numbers."""
    values = ("RSLEX_DIRECT_VOLUME_MOUNT=true", "OMP_NUM_THREADS=8", "LR=1.0e-4")
    words = (f"environment.variables.{value}" for value in values)
    sent = payload(inside, root, "cluster=azureml_cpu", "training.seed=3", *words)["environmentVariables"]
    assert (sent["RSLEX_DIRECT_VOLUME_MOUNT"], sent["OMP_NUM_THREADS"]) == ("true", "8")
    assert float(sent["LR"]) == 1e-4
    assert all(isinstance(value, str) for value in sent.values())


def test_a_folder_at_a_blob_address_is_refused_and_a_datastore_path_is_mounted(inside: Inside, root: Path) -> None:
    """A12: https://github.com/Azure/azure-sdk-for-python/issues/27318: PyFuseError when the job starts."""
    said = refused("cluster=azureml_cpu", "data.train=['https://acme.blob.core.windows.net/corpora/pile']")
    assert "azureml://datastores/NAME/paths/pile" in said
    assert "wasbs://corpora@acme.blob.core.windows.net/pile" in said
    uri = "azureml://datastores/workspaceblobstore/paths/pile"
    sent = payload(inside, root, "cluster=azureml_cpu", f"data.train=['{uri}']", "data.tokenizer=bytes")
    mounted = sent["inputs"]["train_0"]
    assert (mounted["jobInputType"], mounted["mode"]) == ("uri_folder", "ReadOnlyMount")
    assert mounted["uri"].endswith("datastores/workspaceblobstore/paths/pile")


def test_checkpoints_of_a_spot_job_are_on_a_mounted_output_that_every_attempt_shares(
    inside: Inside, root: Path
) -> None:
    """A15: https://github.com/Azure/MachineLearningNotebooks/issues/1575: ./outputs is not restored."""
    spot = ("cluster=nd_a100_v4", "cluster.instance_count=2", "cluster.tier=spot", "checkpoint.interval_steps=10")
    assert "outputs" in refused(*spot, "checkpoint.directory=./outputs")
    sent = payload(inside, root, *spot, "training.seed=4")
    assert sent["outputs"]["run"]["mode"] == "ReadWriteMount"
    name = sent["outputs"]["run"]["uri"].rpartition("/")[2]
    assert not name.endswith("-1")  # of the run, not of its attempt


def test_checkpoints_on_the_nodes_own_disk_are_called_lost_and_not_sent(root: Path) -> None:
    """K04: https://github.com/MicrosoftDocs/azure-docs/issues/118263: the docs' example lost them."""
    words = ("cluster=azureml_cpu", "checkpoint.directory=/tmp/ckpt")
    assert "lost" in "".join(found.message for found in plan_of(*words).findings)
    with pytest.raises(PlanError, match="lost"):
        prepare(job_of(root, *words))


def test_spot_on_serverless_is_the_job_tier_spot(inside: Inside, root: Path) -> None:
    """A21: https://github.com/skypilot-org/skypilot/issues/4406: asked for spot, paid for dedicated."""
    words = ("cluster=ndm_a100_v4", "cluster.instance_count=2", "cluster.tier=spot", "checkpoint.interval_steps=10")
    sent = payload(inside, root, *words)
    assert sent["queueSettings"]["jobTier"].lower() == "spot"
    assert sent["resources"]["instanceType"] == "Standard_ND96amsr_A100_v4"


def test_compute_local_is_sent_to_the_local_backend() -> None:
    """A22: https://github.com/Azure/azure-sdk-for-python/issues/37867: 'queueSettings.jobTier not a valid enum'."""
    assert "cluster.backend=local" in refused("cluster=azureml_cpu", "cluster.compute=local")


def test_an_environment_has_a_version_and_both_spellings_of_a_compute_are_one(inside: Inside, root: Path) -> None:
    """A26: https://github.com/Azure/azureml-previews/issues/125, https://github.com/Azure/azure-cli-extensions/issues/4207."""
    assert "@latest" in refused("cluster=azureml_cpu", "environment.asset='azureml:train-env'")
    inside.emulator.workspace.store("environments/train-env/versions/7", {"properties": {}})
    inside.emulator.workspace.store(
        "computes/gpu-cluster",
        {"properties": {"computeType": "AmlCompute", "properties": {"vmSize": "Standard_D4s_v3"}}},
    )
    asset = ("cluster=azureml_cpu", "environment.asset='azureml:train-env@latest'")
    for seed, spelling in enumerate(("gpu-cluster", "azureml:gpu-cluster")):
        sent = payload(inside, root, *asset, f"cluster.compute='{spelling}'", f"training.seed={seed}")
        assert sent["computeId"].endswith("/computes/gpu-cluster")
        assert sent["environmentId"].endswith("/environments/train-env/versions/7")
        assert sent["tags"]["environment"] == "azureml:train-env:7"


def test_one_process_a_gpu_or_one_launcher_a_node_and_never_both(inside: Inside, root: Path) -> None:
    """A27: https://github.com/huggingface/accelerate/issues/3494, https://github.com/NVIDIA-NeMo/Run/issues/130."""
    two = ("cluster=nc_h100_v5", "cluster.instance_type=Standard_NC80adis_H100_v5", "cluster.instance_count=2")
    script = (*two, "entry.script=train.py")
    per_process = payload(inside, root, *script)
    assert per_process["command"] == "python train.py"
    assert per_process["distribution"]["processCountPerInstance"] == 2
    per_node = payload(inside, root, *script, "entry.launcher=torchrun")
    assert per_node["distribution"]["processCountPerInstance"] == 1
    assert per_node["command"] == (
        "torchrun --nnodes 2 --nproc_per_node 2 --node_rank $NODE_RANK --master_addr $MASTER_ADDR "
        "--master_port $MASTER_PORT train.py"
    )
    with pytest.raises(PlanError, match="would start 8 processes on 4 GPUs"):
        job_of(root, *two, "entry.script=torchrun", "entry.arguments=[--nproc_per_node,'2',train.py]")


def test_deepspeed_needs_no_ssh_between_nodes(inside: Inside, root: Path) -> None:
    """A30: https://github.com/deepspeedai/DeepSpeed/issues/1603: its own launcher does."""
    words = ("cluster=nd_a100_v4", "cluster.instance_count=2", "parallelism=deepspeed_zero1")
    sent = payload(inside, root, *words)
    assert sent["distribution"]["distributionType"] == "PyTorch"
    assert sent["command"].startswith("python ")
    assert "hostfile" not in sent["command"]
    assert not any("SSH" in name for name in sent["environmentVariables"])


def test_a_template_of_azure_and_an_interpolation_of_ours_live_in_one_recipe(inside: Inside, root: Path) -> None:
    """H08: https://github.com/omry/omegaconf/issues/981: a grammar error."""
    words = (
        "cluster=azureml_cpu",
        "entry.script=train.py",
        "entry.arguments=[--data,'${{inputs.corpus}}',--steps,'${training.train_steps}']",
        "data.inputs.corpus='azureml://datastores/workspaceblobstore/paths/corpus'",
        "training.train_steps=7",
    )
    assert payload(inside, root, *words)["command"] == "python train.py --data ${{inputs.corpus}} --steps 7"


def test_a_dry_run_shows_no_secret_and_the_job_still_gets_it(inside: Inside, root: Path) -> None:
    """M08: https://github.com/unslothai/unsloth/pull/11100: tokens in the YAML, the config and the parameters."""
    token = "hf_" + "TESTTESTTEST" * 3
    words = ("cluster=azureml_cpu", f"environment.variables.HF_TOKEN={token}", "environment.variables.EMPTY_KEY=''")
    shown = prepare(job_of(root, *words)).text()
    assert token not in shown
    assert yaml.safe_load(shown)["environment_variables"] == {"EMPTY_KEY": "", "HF_TOKEN": "[REDACTED]"}
    assert payload(inside, root, *words)["environmentVariables"]["HF_TOKEN"] == token


AZURE_CLUSTERS = [
    choice.name
    for choice in group_choices("cluster", ())
    if not choice.name.startswith("local") and "_x" not in choice.name  # several VMs of a size that is here
]


@pytest.mark.parametrize("name", AZURE_CLUSTERS)
def test_every_shipped_cluster_becomes_a_job_nothing_is_wrong_with(name: str, root: Path) -> None:
    """What the SDK is given for each of these sizes stands in ``tests/golden/azureml``, and it loads it."""
    prepared = prepare(job_of(root, f"cluster={name}", "cluster.instance_count=1"))
    size = vm_sizes.find(prepared.job.instance_type)
    document = yaml.safe_load(prepared.text())
    assert document["distribution"] == {"type": "pytorch", "process_count_per_instance": max(size.gpus, 1)}
    assert document["environment"] == definition(prepared.job.environment_name).reference


def test_two_nodes_without_infiniband_are_refused_and_two_of_t4_are_warned() -> None:
    said = refused("cluster=nd_h100_v5_ethernet", "cluster.instance_count=2")
    assert "no InfiniBand" in said
    assert "Standard_ND96isr_H100_v5" in said
    warned = plan_of("cluster=nc_t4_v3", "cluster.instance_count=2")
    assert any("InfiniBand" in found.message for found in warned.findings if found.level == "warning")
    assert not warned.errors


def test_many_nodes_that_read_one_account_are_told_before_they_wait() -> None:
    words = ("cluster=nd_h100_v5", "data.train=['azureml:pile:3']", "data.tokenizer=bytes")
    assert "feeds about 5" in "".join(f.message for f in plan_of(*words, "cluster.instance_count=9").findings)
    assert "feeds about 5" not in "".join(f.message for f in plan_of(*words, "cluster.instance_count=4").findings)
