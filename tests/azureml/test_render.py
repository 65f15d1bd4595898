from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.backends.azureml.mounts import with_mounts
from launcher.backends.azureml.render import command_job, command_text
from launcher.backends.azureml.yaml_text import to_yaml
from launcher.job.spec import JobSpec, Mount
from tests.azureml.jobs import job_on

GOLDEN = Path(__file__).parents[1] / "golden" / "azureml"
CLUSTERS = Path(__file__).parents[2] / "recipes" / "cluster"
SHIPPED = {yaml.safe_load(path.read_text())["instance_type"] for path in CLUSTERS.glob("*.yaml")}
"""VM sizes of every shipped cluster."""


def rendered(job: JobSpec, **arguments: Any) -> dict[str, Any]:
    document = command_job(
        with_mounts(job), environment=arguments.pop("environment", "azureml:launcher-x:1"), **arguments
    )
    loaded: dict[str, Any] = yaml.safe_load(to_yaml(document))
    return loaded


def golden_jobs() -> dict[str, JobSpec]:
    on_cluster = {"cluster": {"identity": "managed", "services": ["ssh"], "ssh_public_key": "ssh-ed25519 AAAA me"}}
    kubernetes = {"cluster": {"kubernetes_instance_type": "gpu-8x-a100", "priority": "high"}}
    corpus = {
        "data": {"train": ["azureml:pile:3", "azureml://datastores/big/paths/c4/c4_text_document.bin"]},
        "model": {"init_from": "azureml:gpt-tiny:4"},
    }
    own = {
        "entry": {"script": "train.py", "launcher": "torchrun"},
        "data": {"inputs": {"corpus": "azureml:pile:3"}, "mount": "download"},
    }
    sizes = sorted(size for size in SHIPPED if size.startswith("Standard_"))
    serverless = {size.removeprefix("Standard_").lower(): job_on(size) for size in sizes}
    return serverless | {
        "named_cluster": job_on("Standard_ND96isr_H100_v5", recipe=on_cluster, compute="azureml:h100", shm_size="64g"),
        "kubernetes": job_on("Standard_ND96asr_v4", recipe=kubernetes, compute="aks"),
        "spot": job_on("Standard_ND96amsr_A100_v4", tier="spot", timeout_seconds=86400),
        "remote_data": job_on("Standard_ND96asr_v4", recipe=corpus),
        "torchrun_per_node": job_on(
            "Standard_NC80adis_H100_v5",
            recipe=own,
            command=("python", "train.py", "--data", "${{inputs.corpus}}/part 1", "--lr=1e-4"),
        ),
    }


@pytest.mark.parametrize("name", golden_jobs())
def test_a_job_is_rendered_as_its_golden_file_says(name: str) -> None:
    text = to_yaml(command_job(with_mounts(golden_jobs()[name]), environment="azureml:launcher-x:1"))
    golden = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("name", golden_jobs())
def test_the_sdk_loads_every_golden_file(name: str, tmp_path: Path, quiet_sdk: None) -> None:
    ml = pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").touch()
    (tmp_path / "job.json").write_text("{}")
    (tmp_path / "job.yaml").write_text((GOLDEN / f"{name}.yaml").read_text())

    job = ml.load_job(tmp_path / "job.yaml")

    expected = yaml.safe_load((GOLDEN / f"{name}.yaml").read_text())
    assert (job.name, job.command) == (expected["name"], expected["command"])
    assert job.distribution.process_count_per_instance == expected["distribution"]["process_count_per_instance"]
    assert job.resources.shm_size == expected["resources"]["shm_size"]


def test_two_nodes_of_eight_gpus_get_eight_processes_each_not_sixteen() -> None:
    job = rendered(job_on("Standard_ND96amsr_A100_v4", nodes=2))
    assert job["distribution"] == {"type": "pytorch", "process_count_per_instance": 8}
    assert job["resources"]["instance_count"] == 2


def test_a_gb300_node_gets_four_processes_and_no_hopper_settings() -> None:
    job = rendered(job_on("Standard_ND128isr_GB300_v6", nodes=18))
    assert job["distribution"]["process_count_per_instance"] == 4
    assert job["environment_variables"]["NCCL_IB_SL"] == "1"
    assert job["environment_variables"]["NCCL_MNNVL_ENABLE"] == "1"
    assert "NCCL_PXN_DISABLE" not in job["environment_variables"]


def test_h100_and_h200_get_the_hopper_profile_and_relaxed_ordering() -> None:
    for size in ("Standard_ND96isr_H100_v5", "Standard_ND96isr_H200_v5"):
        variables = rendered(job_on(size))["environment_variables"]
        assert variables["NCCL_PXN_DISABLE"] == "1"
        assert variables["NCCL_IB_PCI_RELAXED_ORDERING"] == "1"
        assert variables["NCCL_SOCKET_IFNAME"] == "eth0"


def test_a_topology_file_is_named_only_when_the_image_holds_it() -> None:
    job = job_on("Standard_ND96asr_v4")
    with_file = rendered(job, topology_in_image=True)["environment_variables"]
    assert with_file["NCCL_TOPO_FILE"] == "/opt/launcher/topology/ndv4-topo.xml"
    assert "NCCL_TOPO_FILE" not in rendered(job)["environment_variables"]


def test_a_size_without_infiniband_says_so_to_nccl() -> None:
    assert rendered(job_on("Standard_ND96is_H100_v5"))["environment_variables"]["NCCL_IB_DISABLE"] == "1"
    assert "NCCL_IB_DISABLE" not in rendered(job_on("Standard_ND96isr_H100_v5"))["environment_variables"]


def test_a_cpu_size_gets_no_nccl_settings() -> None:
    assert "environment_variables" not in rendered(job_on("Standard_D4s_v3"))


def test_the_recipes_own_variables_win_over_the_profile() -> None:
    job = job_on("Standard_ND96asr_v4", environment_variables={"NCCL_DEBUG": "INFO"})
    assert rendered(job)["environment_variables"]["NCCL_DEBUG"] == "INFO"


def test_shared_memory_is_always_said_and_never_azure_mls_two_gigabytes() -> None:
    assert rendered(job_on("Standard_ND96asr_v4"))["resources"]["shm_size"] == "64g"  # 8 processes x 8 GiB
    assert rendered(job_on("Standard_NC24ads_A100_v4"))["resources"]["shm_size"] == "16g"  # the floor
    assert rendered(job_on("Standard_D4s_v3"))["resources"]["shm_size"] == "8g"  # half of 16 GiB
    assert rendered(job_on("Standard_ND96asr_v4", shm_size="200g"))["resources"]["shm_size"] == "200g"


def test_spot_is_a_tier_of_serverless_and_the_size_travels_with_it() -> None:
    job = rendered(job_on("Standard_ND96amsr_A100_v4", tier="spot"))
    assert job["queue_settings"] == {"job_tier": "Spot"}
    assert job["resources"]["instance_type"] == "Standard_ND96amsr_A100_v4"
    assert "compute" not in job


@pytest.mark.parametrize("spelling", ["gpu-cluster", "azureml:gpu-cluster"])
def test_both_spellings_of_a_compute_target_are_one(spelling: str) -> None:
    job = rendered(job_on("Standard_ND96asr_v4", compute=spelling))
    assert job["compute"] == "azureml:gpu-cluster"
    assert "instance_type" not in job["resources"]


def test_a_named_image_is_given_as_an_image() -> None:
    assert rendered(job_on("Standard_D4s_v3"), environment="me.azurecr.io/x@sha256:1")["environment"] == {
        "image": "me.azurecr.io/x@sha256:1"
    }


def test_the_trainer_is_started_by_the_service_with_no_launcher_between() -> None:
    command = rendered(job_on("Standard_ND96asr_v4"))["command"]
    assert command == "python -m launcher.training ${{inputs.job}} --output ${{outputs.run}}"


def test_the_run_folder_is_mounted_and_the_same_for_every_attempt() -> None:
    first = rendered(job_on("Standard_D4s_v3"))
    second = rendered(job_on("Standard_D4s_v3", attempt=2, name="run"))
    second_named = rendered(
        JobSpec(**{**job_on("Standard_D4s_v3").__dict__, "attempt": 2, "name": "run-5d0c91aa7be2f013-2"})
    )
    assert first["outputs"]["run"]["mode"] == "rw_mount"
    assert first["outputs"]["run"]["path"] == second_named["outputs"]["run"]["path"]
    assert "5d0c91aa7be2f013" in first["outputs"]["run"]["path"]
    assert second["name"] == first["name"]


def test_remote_data_becomes_inputs_and_the_trainer_is_told_their_paths() -> None:
    job = rendered(golden_jobs()["remote_data"])
    assert job["inputs"]["train_0"] == {"type": "uri_folder", "path": "azureml:pile:3", "mode": "ro_mount"}
    # of x.bin/x.idx the folder is mounted, and the prefix is what the trainer opens
    assert job["inputs"]["train_1"]["path"] == "azureml://datastores/big/paths/c4"
    assert "--mount=azureml:pile:3=${{inputs.train_0}}" in job["command"]
    assert job["inputs"]["weights"] == {"type": "custom_model", "path": "azureml:gpt-tiny:4", "mode": "ro_mount"}
    assert "--mount=azureml:gpt-tiny:4=${{inputs.weights}}" in job["command"]
    assert "=${{inputs.train_1}}/c4_text_document " in job["command"]


def test_a_mounted_input_leaves_disk_free_and_reads_shuffled_data_without_read_ahead() -> None:
    variables = rendered(golden_jobs()["remote_data"])["environment_variables"]
    assert variables["DATASET_MOUNT_CACHE_SIZE"] == "-10GB"
    assert variables["DATASET_MOUNT_BLOCK_BASED_CACHE_ENABLED"] == "false"


def test_data_read_once_in_order_is_read_ahead() -> None:
    recipe = {"data": {"train": ["azureml:pile:3"], "shuffle": False}}
    variables = rendered(job_on("Standard_ND96asr_v4", recipe=recipe))["environment_variables"]
    assert variables["DATASET_MOUNT_READ_BUFFER_BLOCK_COUNT"] == "80"


def test_arguments_are_quoted_for_the_shell_and_templates_are_not() -> None:
    job = job_on(
        "Standard_D4s_v3",
        command=("python", "train.py", "--note", "a b; rm -rf /", "--data=${{inputs.corpus}}/x y", ""),
    )
    assert command_text(job) == "python train.py --note 'a b; rm -rf /' --data=${{inputs.corpus}}'/x y' ''"


def test_one_torchrun_per_node_replaces_one_process_per_gpu() -> None:
    job = rendered(golden_jobs()["torchrun_per_node"])
    assert job["distribution"]["process_count_per_instance"] == 1
    assert job["command"].startswith(
        "torchrun --nnodes 2 --nproc_per_node 2 --node_rank $NODE_RANK "
        "--master_addr $MASTER_ADDR --master_port $MASTER_PORT train.py "
    )


def test_kubernetes_compute_gets_its_own_instance_type() -> None:
    job = rendered(golden_jobs()["kubernetes"])
    assert (job["compute"], job["resources"]["instance_type"]) == ("azureml:aks", "gpu-8x-a100")


def test_outputs_are_never_in_environment_variables() -> None:
    for job in golden_jobs().values():
        assert not any("${{" in value for value in rendered(job).get("environment_variables", {}).values())


def test_a_declared_mount_keeps_its_kind_and_mode() -> None:
    job = job_on("Standard_D4s_v3", inputs={"x": Mount(path="azureml:x:1", kind="uri_file", mode="download")})
    assert rendered(job)["inputs"]["x"] == {"type": "uri_file", "path": "azureml:x:1", "mode": "download"}
