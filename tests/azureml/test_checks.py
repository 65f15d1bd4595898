from __future__ import annotations

from typing import Any

import pytest

from launcher.backends.azureml.checks import check
from launcher.backends.azureml.mounts import with_mounts
from launcher.errors import ExitCode, PlanError
from launcher.job.spec import JobSpec, Mount
from tests.azureml.jobs import job_on


def refusal(job: JobSpec) -> PlanError:
    with pytest.raises(PlanError) as caught:
        check(with_mounts(job))
    return caught.value


def text(error: PlanError) -> str:
    return "\n".join(f"{fault.what} | {fault.keys} | {fault.allowed} | {fault.suggestion}" for fault in error.faults)


@pytest.mark.parametrize(
    "size", ["Standard_D4s_v3", "Standard_ND96isr_H100_v5", "Standard_ND128isr_GB300_v6", "Standard_NC64as_T4_v3"]
)
def test_a_sound_job_passes(size: str) -> None:
    check(with_mounts(job_on(size)))


def test_two_processes_on_a_one_gpu_size_are_refused_with_both_numbers() -> None:
    said = text(refusal(job_on("Standard_NC6s_v3", nodes=1, processes_per_node=2)))
    assert "process_count_per_instance=2" in said
    assert "Standard_NC6s_v3" in said
    assert "1 GPU per node (2 > 1)" in said
    assert "cluster.processes_per_instance=1 cluster.instance_count=2" in said


def test_sixteen_processes_on_an_eight_gpu_size_are_refused() -> None:
    said = text(refusal(job_on("Standard_ND96amsr_A100_v4", processes_per_node=16)))
    assert "Standard_ND96amsr_A100_v4" in said
    assert "8 GPUs per node" in said
    assert "16 > 8" in said


def test_a_template_in_a_variable_is_refused_because_only_the_command_is_filled_in() -> None:
    job = job_on("Standard_D4s_v3", environment_variables={"CKPT_DIR": "${{outputs.checkpoints}}"})
    said = text(refusal(job))
    assert "CKPT_DIR" in said
    assert "only in command" in said


def test_compute_local_is_sent_to_the_local_backend() -> None:
    assert "cluster.backend=local" in text(refusal(job_on("Standard_D4s_v3", compute="local")))


def test_a_folder_at_a_blob_address_is_refused_with_both_spellings_that_work() -> None:
    recipe = {"data": {"train": ["https://acme.blob.core.windows.net/corpora/pile"]}}
    said = text(refusal(job_on("Standard_D4s_v3", recipe=recipe)))
    assert "train_0" in said
    assert "azureml://datastores/NAME/paths/pile" in said
    assert "wasbs://corpora@acme.blob.core.windows.net/pile" in said


@pytest.mark.parametrize("directory", ["/tmp/ckpt", "./outputs", "/mnt/x"])
def test_checkpoints_on_the_disk_of_the_vm_are_refused_as_lost(directory: str) -> None:
    recipe = {"checkpoint": {"directory": directory}}
    assert "lost" in text(refusal(job_on("Standard_D4s_v3", recipe=recipe, tier="spot")))


def test_an_environment_without_a_version_is_refused() -> None:
    said = text(refusal(job_on("Standard_D4s_v3", environment_asset="azureml:train-env")))
    assert "azureml:train-env@latest" in said


@pytest.mark.parametrize("asset", ["azureml:train-env:7", "azureml:train-env@latest"])
def test_an_environment_with_a_version_or_label_passes(asset: str) -> None:
    check(with_mounts(job_on("Standard_D4s_v3", environment_asset=asset)))


def test_an_x86_image_on_grace_is_refused_before_exec_format_error() -> None:
    said = text(refusal(job_on("Standard_ND128isr_GB300_v6", environment_name="cuda")))
    assert "aarch64" in said
    assert "environment.name=cuda_arm64" in said


def test_an_image_without_cuda_on_a_gpu_size_is_refused() -> None:
    assert "environment.name=cuda" in text(refusal(job_on("Standard_ND96asr_v4", environment_name="cpu")))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"shm_size": "64 gigs"}, "'64 gigs'"),
        ({"name": "tf-mnist-job-3:13PM"}, "cannot name an Azure ML job"),
        ({"tags": {f"t{n}": "x" for n in range(51)}}, "51 tags"),
        ({"tags": {"note": "x" * 1001}}, "1001 characters"),
        ({"timeout_seconds": 22 * 86400}, "after 21 days"),
        ({"timeout_seconds": 8 * 86400, "tier": "spot"}, "after 7 days"),
        ({"environment_variables": {"MASTER_PORT": "29500"}}, "Azure ML sets MASTER_PORT"),
        ({"environment_variables": {"NCCL_IB_DISABLE": "1"}, "instance_type": "Standard_ND96asr_v4"}, "InfiniBand"),
        ({"command": ("python", "t.py", "${{inputs.corpus}}")}, "reads ${{inputs.corpus}}"),
        ({"command": ("python", "t.py", "${{outputs.default}}")}, "reads ${{outputs.default}}"),
        ({"inputs": {"default": Mount(path="azureml:x:1")}}, "'default' cannot name"),
        ({"inputs": {"x": Mount(path="azureml:x")}}, "azureml:x has no version"),
        ({"instance_type": "local_cpu"}, "is this machine"),
        ({"environment_name": "cup"}, ""),
    ],
)
def test_what_the_sdk_lets_pass_is_refused(fields: dict[str, Any], what: str) -> None:
    job = job_on(**{"instance_type": "Standard_D4s_v3", **fields})
    if fields.get("environment_name"):
        from launcher.errors import RecipeError

        with pytest.raises(RecipeError, match="no environment 'cup'"):
            check(with_mounts(job))
        return
    assert what in text(refusal(job))


def test_every_fault_is_reported_at_once_with_the_exit_code_of_a_refused_recipe() -> None:
    error = refusal(
        job_on("Standard_D4s_v3", shm_size="x", compute="local", environment_variables={"MASTER_ADDR": "a"})
    )
    assert len(error.faults) == 3
    assert error.exit_code is ExitCode.REFUSED


def test_services_need_a_key_to_enter_by() -> None:
    assert "ssh_public_key" in text(refusal(job_on("Standard_D4s_v3", recipe={"cluster": {"services": ["ssh"]}})))


def test_a_kubernetes_instance_type_needs_its_compute_target() -> None:
    recipe = {"cluster": {"kubernetes_instance_type": "gpu"}}
    assert "cluster.compute" in text(refusal(job_on("Standard_ND96asr_v4", recipe=recipe)))
