from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from launcher.backends.azureml import nccl
from launcher.backends.azureml.environments import definition, environment_names
from launcher.catalog.vm_sizes import VM_SIZES
from launcher.errors import RecipeError

if TYPE_CHECKING:
    from pathlib import Path


def test_there_is_one_for_a_cpu_for_cuda_for_grace_and_for_rocm() -> None:
    found = {name: definition(name) for name in environment_names()}
    assert {name: (one.device, one.architecture) for name, one in found.items()} == {
        "cpu": ("cpu", "x86_64"),
        "cuda": ("gpu", "x86_64"),
        "cuda_arm64": ("gpu", "aarch64"),
        "rocm": ("gpu", "x86_64"),
    }


def test_an_unknown_one_is_refused_with_what_was_probably_meant() -> None:
    with pytest.raises(RecipeError) as caught:
        definition("cdua")
    assert caught.value.faults[0].suggestion == "environment.name=cuda"


def test_the_version_is_that_of_the_content_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from launcher.backends.azureml import environments

    monkeypatch.setattr(environments, "environments_folder", lambda: tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "Dockerfile").write_text("FROM x\n")
    first = definition("mine").version
    (tmp_path / "mine" / "environment.yaml").write_text("name: mine\n")
    assert definition("mine").version == first
    (tmp_path / "mine" / "Dockerfile").write_text("FROM y\n")
    assert definition("mine").version != first


@pytest.mark.parametrize("name", environment_names())
def test_every_requirement_is_pinned_and_mlflow_stays_under_the_azure_plugins_cap(name: str) -> None:
    lines = (definition(name).folder / "requirements.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert all(re.fullmatch(r"[\d.]+(?:post\d+)?", version) for version in pins.values())
    # azureml-mlflow 1.62 requires mlflow-skinny <= 3.15.0
    assert tuple(map(int, pins["mlflow-skinny"].split("."))) <= (3, 15, 0)
    image = re.search(r"pytorch_release_(\d+\.\d+)", (definition(name).folder / "Dockerfile").read_text())
    torch = pins.get("torch") or (image and image[1]) or ""
    assert tuple(map(int, torch.split(".")[:2])) >= (2, 10)  # CVE-2026-24747 below


def test_no_image_is_taken_by_a_moving_tag() -> None:
    for name in environment_names():
        dockerfile = (definition(name).folder / "Dockerfile").read_text()
        for image in re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE):
            assert ":" in image.rpartition("/")[2]
            assert not image.endswith(":latest")


def test_every_topology_file_a_profile_names_is_put_into_the_cuda_image() -> None:
    dockerfile = (definition("cuda").folder / "Dockerfile").read_text()
    assert definition("cuda").topology_folder == nccl.TOPOLOGY_FOLDER
    for profile in nccl.PROFILES.values():
        if profile.topology:
            assert f"-o {profile.topology} " in dockerfile


def test_every_profile_of_the_catalogue_is_known() -> None:
    named = {size.nccl_profile for size in VM_SIZES} - {None, "noib"}
    assert named <= nccl.PROFILES.keys()
