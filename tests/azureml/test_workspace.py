"""Clusters, quota, data, models, images and addresses of a workspace, against the emulator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from launcher.backends.azureml import clusters, datasets, gpus, images
from launcher.backends.azureml.address import resolve_address
from launcher.backends.azureml.backend import AzureMLBackend
from launcher.backends.azureml.options import Options
from launcher.backends.azureml.patience import Patience
from launcher.backends.azureml.preflight import Quota, require
from launcher.errors import BackendError
from tests.azureml.jobs import job_on

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.backends.azureml.client import Client
    from tests.emulated import Inside

pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
pytestmark = pytest.mark.usefixtures("quiet_sdk")
H100, A100 = "Standard_ND96isr_H100_v5", "Standard_ND96amsr_A100_v4"


def client() -> Client:
    return AzureMLBackend(patience=Patience(backoff_seconds=0.02)).client()


def refusal(client: Client, **job: object) -> str:
    with pytest.raises(BackendError) as caught:
        require(client, job_on(A100, **job))  # type: ignore[arg-type]
    return "; ".join(f"{fault.what} | {fault.allowed} | {fault.suggestion}" for fault in caught.value.faults)


def test_a_cluster_is_made_shown_scaled_and_deleted(inside: Inside) -> None:
    ml = client()
    wish = clusters.Wish(name="h100-spot", size=H100, tier="spot", max_nodes=4, ssh_public_key="ssh-ed25519 AAAA me")
    made = clusters.create(ml, wish)
    assert (made.size, made.tier, made.min_nodes, made.max_nodes) == (H100, "spot", 0, 4)
    assert (made.idle_seconds, made.identity, made.ssh) == (1800, "SystemAssigned", True)
    assert clusters.scale(ml, "h100-spot", min_nodes=None, max_nodes=16).max_nodes == 16
    assert "h100-spot" in [cluster.name for cluster in clusters.clusters(ml)]
    clusters.delete(ml, "h100-spot")
    with pytest.raises(BackendError, match="no compute target 'h100-spot'"):
        clusters.show(ml, "h100-spot")


def test_a_cluster_that_cannot_be_is_refused_before_any_call(inside: Inside) -> None:
    with pytest.raises(BackendError) as caught:
        clusters.create(client(), clusters.Wish(name="x", size="Standard_NC6s_v3", min_nodes=3, max_nodes=2))
    assert [fault.code for fault in caught.value.faults] == [
        "azureml.compute_name", "azureml.compute_nodes", "azureml.retired"
    ]  # fmt: skip


def test_spot_on_a_dedicated_cluster_is_refused_with_both_words(inside: Inside) -> None:
    ml = client()
    clusters.create(ml, clusters.Wish(name="a100-dedicated", size=A100, max_nodes=4))
    said = refusal(ml, compute="a100-dedicated", tier="spot")
    assert "cluster.tier=spot" in said
    assert "a100-dedicated is dedicated" in said
    clusters.delete(ml, "a100-dedicated")


def test_a_cluster_of_another_size_or_too_small_is_refused(inside: Inside) -> None:
    ml = client()
    clusters.create(ml, clusters.Wish(name="too-small", size=H100, max_nodes=2))
    said = refusal(ml, compute="azureml:too-small", nodes=4)
    assert f"too-small has {H100}" in said
    assert "grows to 2" in said
    clusters.delete(ml, "too-small")


@pytest.mark.parametrize(
    ("limit", "used", "left", "fits"), [(192, 0, 192, 2), (480, 192, 288, 3)]
)  # 4 x 96 = 384 vCPUs are wanted
def test_quota_is_counted_before_anything_is_sent(limit: int, used: int, left: int, fits: int, inside: Inside) -> None:
    """A17: https://github.com/MicrosoftLearning/mslearn-dp100/issues/35: found only after the job had queued."""
    inside.settings(cores_by_family={"standard NDAMSv4_A100Family": limit})
    ml = client()
    if used:
        usages = ml.regional("usages")
        for usage in usages:
            usage["currentValue"] = used if "NDAMSv4" in usage["name"]["value"] else 0
        ml.regional = lambda what: usages  # type: ignore[method-assign]
    said = refusal(ml, nodes=4)
    assert "384 vCPUs" in said
    assert f"{left} are left" in said
    assert f"cluster.instance_count={fits}" in said


def test_families_are_one_however_a_service_spells_them(inside: Inside) -> None:
    for spelling in ("standardNDSH100v5Family", "Standard NDSH100v5 Family", "STANDARD_NDSH100V5"):
        inside.settings(cores_by_family={spelling: 200})
        offer = next(offer for offer in gpus.offers(client()) if offer.size.name == H100)
        assert (offer.quota and offer.quota.limit, offer.nodes_left) == (200, 2)  # 200 // 96


def test_what_is_left_is_never_less_than_nothing() -> None:
    assert Quota(family="x", used=10, limit=4).left == 0


def test_a_folder_becomes_a_data_asset_and_is_sent_once(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.bin").write_bytes(b"x" * 1000)
    (tmp_path / "sub" / "b.txt").write_text("hello")
    ml, seen = client(), list[int]()

    first = datasets.upload(ml, tmp_path, "books", version="1", progress=seen.append)
    second = datasets.upload(ml, tmp_path, "books", version="1", progress=seen.append)

    assert (first.reference, first.files, first.bytes, first.sent_bytes) == ("azureml:books:1", 2, 1005, 1005)
    assert second.sent_bytes == 0
    assert sorted(seen) == [5, 5, 1000, 1000]
    stored = inside.emulator.workspace.resources["data/books/versions/1"]["properties"]["dataUri"]
    assert stored == "azureml://datastores/workspaceblobstore/paths/launcher/data/books/1"
    assert inside.emulator.blobs.get("azureml-blobstore", "launcher/data/books/1/sub/b.txt") == b"hello"


def test_a_tag_becomes_a_digest_where_the_registry_answers(inside: Inside) -> None:
    pinned = images.pinned("mcr.microsoft.com/azureml/curated/acpt-pytorch-2.8-cuda12.6:17")
    assert pinned.startswith("mcr.microsoft.com/azureml/curated/acpt-pytorch-2.8-cuda12.6@sha256:")
    assert images.pinned(pinned) == pinned
    # inside the emulator no other registry can be reached: the tag stays
    assert images.pinned("docker.io/library/python:3.11") == "docker.io/library/python:3.11"


def test_the_workspace_is_the_recipes_then_the_environments_then_that_of_config_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("SUBSCRIPTION", "RESOURCEGROUP", "WORKSPACE_NAME"):
        monkeypatch.delenv(f"AZUREML_ARM_{variable}", raising=False)
    config = {"subscription_id": "s", "resource_group": "g", "workspace_name": "from-file"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert resolve_address().workspace == "from-file"
    monkeypatch.setenv("AZUREML_ARM_WORKSPACE_NAME", "from-environment")
    assert resolve_address().workspace == "from-environment"
    assert resolve_address(Options(workspace="from-recipe")).workspace == "from-recipe"


def test_every_missing_part_of_the_workspace_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SUBSCRIPTION", "RESOURCEGROUP", "WORKSPACE_NAME"):
        monkeypatch.delenv(f"AZUREML_ARM_{variable}", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BackendError) as caught:
        resolve_address()
    assert [fault.keys for fault in caught.value.faults] == [
        ("cluster.subscription_id",), ("cluster.resource_group",), ("cluster.workspace",)
    ]  # fmt: skip
