"""Facts about VM sizes, against Microsoft's documents (the expected numbers are theirs)."""

from __future__ import annotations

import pytest

from launcher.catalog import accelerators, vm_sizes
from launcher.catalog.vm_size import normalise_family
from launcher.errors import PlanError


@pytest.mark.parametrize(
    ("name", "gpus", "accelerator", "vcpus", "infiniband"),
    [
        # skypilot-catalog PR 50 listed 12 GPUs for ND96isr_H100_v5 (96 vCPUs / 8); documents say 8.
        ("Standard_ND96isr_H100_v5", 8, "H100-SXM-80GB", 96, 400),
        ("Standard_ND96amsr_A100_v4", 8, "A100-SXM-80GB", 96, 200),
        ("Standard_ND96asr_v4", 8, "A100-SXM-40GB", 96, 200),
        ("Standard_NC80adis_H100_v5", 2, "H100-NVL-94GB", 80, None),
        ("Standard_NC24ads_A100_v4", 1, "A100-PCIE-80GB", 24, None),
        ("Standard_ND128isr_GB300_v6", 4, "GB300", 128, 800),
    ],
)
def test_a_size_has_the_documented_gpus_processors_and_network(
    name: str, gpus: int, accelerator: str, vcpus: int, infiniband: float | None
) -> None:
    size = vm_sizes.find(name)

    assert (size.gpus, size.accelerator, size.vcpus) == (gpus, accelerator, vcpus)
    assert size.infiniband_gb_per_s_per_gpu == infiniband


def test_a_size_that_does_not_exist_is_refused_with_near_misses() -> None:
    with pytest.raises(PlanError) as caught:
        vm_sizes.find("Standard_ND96asr_v5")

    fault = caught.value.faults[0]
    assert "Standard_ND96asr_v5" in fault.what
    assert fault.allowed is not None
    assert "Standard_ND96asr_v4" in fault.allowed
    assert "Standard_ND96isr_H100_v5" in fault.allowed


def test_sizes_are_found_in_any_case() -> None:
    assert vm_sizes.find("standard_nd96asr_V4").name == "Standard_ND96asr_v4"


def test_grace_blackwell_sizes_are_aarch64_slices_of_a_72_gpu_rack() -> None:
    size = vm_sizes.find("Standard_ND128isr_NDR_GB200_v6")

    assert (size.architecture, size.gpus, size.island_gpus) == ("aarch64", 4, 72)


def test_every_azure_gpu_size_names_a_known_accelerator_and_a_source() -> None:
    for size in vm_sizes.VM_SIZES:
        assert size.source
        if size.accelerator is not None:
            assert accelerators.find(size.accelerator).source


def test_every_known_price_has_a_region_a_date_and_a_source() -> None:
    priced = [size.price for size in vm_sizes.VM_SIZES if size.price.dollars_per_hour is not None]

    assert len(priced) > 20
    assert all(price.region and price.date and price.source for price in priced)


def test_quota_families_are_compared_without_case_blanks_and_suffix() -> None:
    spellings = ("Standard NDASv4_A100 Family", "standardNDASv4A100Family", "STANDARDNDASV4_A100")

    assert {normalise_family(spelling) for spelling in spellings} == {"standardndasv4a100"}


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        # NVIDIA data sheets, dense (the sparse figures are twice these).
        ("A100", "bf16", 312e12),
        ("H100", "bf16", 989.4e12),
        ("H100", "fp8", 1978.9e12),
        ("GB200", "nvfp4", 10_000e12),
        ("V100", "bf16", None),
    ],
)
def test_peaks_are_dense(name: str, precision: str, peak: float | None) -> None:
    assert accelerators.find(name).peak_flops(precision) == peak


def test_an_unknown_accelerator_is_refused_with_near_misses() -> None:
    with pytest.raises(PlanError, match="no accelerator 'H100-SXM-8OGB'") as caught:
        accelerators.find("H100-SXM-8OGB")

    assert "H100-SXM-80GB" in (caught.value.faults[0].allowed or "")
