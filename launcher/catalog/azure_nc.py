"""Azure NC and NV sizes: 1 to 4 GPUs over PCIe, without InfiniBand. One small table a series.

Read on 2026-11-30 from azure-compute-docs (``source``); prices from the SkyPilot catalogue (undated, about 2024).
"""

from __future__ import annotations

from launcher.catalog.vm_size import Price, VmSize

_V6 = "skypilot-catalog@0987414 v6 vms.csv"
_V5 = "skypilot-catalog@3f5f697 v5 vms.csv"
_UNDATED = "2024 (undated snapshot)"


def _price(dollars: float | None, spot: float | None, *, region: str = "eastus", source: str = _V6) -> Price:
    return Price(
        dollars_per_hour=dollars, spot_dollars_per_hour=spot, region=region, date=_UNDATED, source=source
    )  # fmt: skip


def _v100(name: str, gpus: int, vcpus: int, ram: int, disk: int, price: Price) -> VmSize:
    return VmSize(
        name=name,
        series="NCv3",
        accelerator="V100-PCIE-16GB",
        gpus=gpus,
        vcpus=vcpus,
        ram_gib=ram,
        local_disk_gib=disk,
        island_gpus=1,
        link_gb_s=None,
        pcie_gb_s=32,
        infiniband_gb_per_s_per_gpu=None,
        ethernet_gb_per_s=None,
        quota_family="standardNCSv3Family",
        nccl_profile=None,
        status="retired",
        status_since="2025-09-30",
        price=price,
        source="azure-compute-docs ncv3-series.md",
        note="NC24rs_v3 alone had InfiniBand; its speed is not in a source" if name == "Standard_NC24rs_v3" else "",
    )


def _t4(name: str, gpus: int, vcpus: int, ram: int, disk: int, network: int, price: Price) -> VmSize:
    return VmSize(
        name=name,
        series="NCasT4 v3",
        accelerator="T4",
        gpus=gpus,
        vcpus=vcpus,
        ram_gib=ram,
        local_disk_gib=disk,
        island_gpus=1,
        link_gb_s=None,
        pcie_gb_s=32,
        infiniband_gb_per_s_per_gpu=None,
        ethernet_gb_per_s=network,
        quota_family="Standard NCASv3_T4 Family",
        nccl_profile=None,
        price=price,
        source="azure-compute-docs ncast4v3-series.md",
        note="no bf16",
    )


def _a10(
    name: str, gpus: int, vcpus: int, ram: int, disk: int, network: int | None, price: Price, *, fraction: float = 1.0
) -> VmSize:
    return VmSize(
        name=name,
        series="NVads A10 v5",
        accelerator="A10",
        gpus=gpus,
        vcpus=vcpus,
        ram_gib=ram,
        local_disk_gib=disk,
        island_gpus=1,
        link_gb_s=None,
        pcie_gb_s=64,
        infiniband_gb_per_s_per_gpu=None,
        ethernet_gb_per_s=network,
        quota_family="StandardNVADSA10v5Family",
        nccl_profile=None,
        gpu_fraction=fraction,
        price=price,
        source="azure-compute-docs nvadsa10v5-series.md",
        note="a share of one GPU: not for distributed training" if fraction < 1 else "",
    )


def _a100(name: str, gpus: int, vcpus: int, ram: int, disk: int, network: int, price: Price) -> VmSize:
    return VmSize(
        name=name,
        series="NC A100 v4",
        accelerator="A100-PCIE-80GB",
        gpus=gpus,
        vcpus=vcpus,
        ram_gib=ram,
        local_disk_gib=disk,
        island_gpus=min(gpus, 2),
        link_gb_s=600 if gpus > 1 else None,
        pcie_gb_s=64,
        infiniband_gb_per_s_per_gpu=None,
        ethernet_gb_per_s=network,
        quota_family="StandardNCADSA100v4Family",
        nccl_profile={2: "ncv4-nc48", 4: "ncv4"}.get(gpus),
        price=price,
        source="azure-compute-docs nca100v4-series.md",
        note="NVLink bridges join pairs of GPUs only" if gpus > 1 else "",
    )


def _h100(
    name: str, gpus: int, vcpus: int, ram: int, disk: int, network: int, price: Price, *, confidential: bool = False
) -> VmSize:
    return VmSize(
        name=name,
        series="NCCads H100 v5" if confidential else "NCads H100 v5",
        accelerator="H100-NVL-94GB",
        gpus=gpus,
        vcpus=vcpus,
        ram_gib=ram,
        local_disk_gib=disk,
        island_gpus=gpus,
        link_gb_s=600 if gpus > 1 else None,
        pcie_gb_s=128,
        infiniband_gb_per_s_per_gpu=None,
        ethernet_gb_per_s=network,
        quota_family="StandardNCCads2023Family" if confidential else "StandardNCadsH100v5Family",
        nccl_profile="noib",
        price=price,
        source=f"azure-compute-docs {'nccadsh100v5' if confidential else 'ncadsh100v5'}-series.md",
        note="confidential VM, no accelerated networking" if confidential else "",
    )


def _rtx_pro(name: str, gpus: int, vcpus: int, ram: int, disk: int, network: int) -> VmSize:
    return VmSize(
        name=name,
        series="NC RTX PRO 6000 BSE v6",
        accelerator="RTXPRO6000BSE",
        gpus=gpus,
        vcpus=vcpus,
        ram_gib=ram,
        local_disk_gib=disk,
        island_gpus=1,
        link_gb_s=None,
        pcie_gb_s=128,
        infiniband_gb_per_s_per_gpu=None,
        ethernet_gb_per_s=network,
        quota_family=None,
        nccl_profile="ncv6",
        status="preview",
        status_since="2025-12",
        source="azure-compute-docs nc-rtxpro6000-bse-v6-series.md",
        note="no peak, price or quota family in a source yet",
    )


NC_SIZES: tuple[VmSize, ...] = (
    _v100("Standard_NC6s_v3", 1, 6, 112, 736, _price(3.06, 0.3978)),
    _v100("Standard_NC12s_v3", 2, 12, 224, 1474, _price(6.12, 0.7956)),
    _v100("Standard_NC24s_v3", 4, 24, 448, 2948, _price(12.24, 1.5912)),
    _v100("Standard_NC24rs_v3", 4, 24, 448, 2948, _price(13.46, 1.7498)),
    _t4("Standard_NC4as_T4_v3", 1, 4, 28, 176, 8, _price(0.526, 0.0627)),
    _t4("Standard_NC8as_T4_v3", 1, 8, 56, 352, 8, _price(0.752, 0.0896)),
    _t4("Standard_NC16as_T4_v3", 1, 16, 110, 352, 8, _price(1.204, 0.1435)),
    _t4("Standard_NC64as_T4_v3", 4, 64, 440, 2816, 32, _price(4.352, 0.5188)),
    _a10("Standard_NV6ads_A10_v5", 1, 6, 55, 180, None, _price(0.454, 0.1135, source=_V5), fraction=1 / 6),
    _a10("Standard_NV12ads_A10_v5", 1, 12, 110, 360, None, _price(0.908, 0.227, source=_V5), fraction=1 / 3),
    _a10("Standard_NV18ads_A10_v5", 1, 18, 220, 720, None, _price(1.6, 0.4, source=_V5), fraction=1 / 2),
    _a10("Standard_NV36ads_A10_v5", 1, 36, 440, 1440, 40, _price(3.2, 0.8, source=_V5)),
    _a10("Standard_NV36adms_A10_v5", 1, 36, 880, 2880, 80, _price(4.52, 1.13, source=_V5)),
    _a10("Standard_NV72ads_A10_v5", 2, 72, 880, 2880, 80, _price(6.52, 1.63, source=_V5)),
    _a100("Standard_NC24ads_A100_v4", 1, 24, 220, 64, 20, _price(3.673, 0.4444)),
    _a100("Standard_NC48ads_A100_v4", 2, 48, 440, 128, 40, _price(7.346, 0.8889)),
    _a100("Standard_NC96ads_A100_v4", 4, 96, 880, 256, 80, _price(14.692, 1.7777)),
    _h100("Standard_NC40ads_H100_v5", 1, 40, 320, 3576, 40, _price(6.98, None)),
    _h100("Standard_NC80adis_H100_v5", 2, 80, 640, 7152, 80, _price(13.96, None)),
    _h100("Standard_NCC40ads_H100_v5", 1, 40, 320, 800, 40, _price(6.98, 1.745, region="eastus2"), confidential=True),
    _rtx_pro("Standard_NC128ds_xl_RTXPRO6000BSE_v6", 1, 128, 512, 1024, 75),
    _rtx_pro("Standard_NC256ds_xl_RTXPRO6000BSE_v6", 2, 256, 1024, 2048, 100),
    _rtx_pro("Standard_NC320ds_xl_RTXPRO6000BSE_v6", 2, 320, 1280, 2048, 200),
    _rtx_pro("Standard_NC128lds_xl_RTXPRO6000BSE_v6", 1, 128, 256, 1024, 75),
    _rtx_pro("Standard_NC256lds_xl_RTXPRO6000BSE_v6", 2, 256, 512, 2048, 100),
    _rtx_pro("Standard_NC320lds_xl_RTXPRO6000BSE_v6", 2, 320, 640, 2048, 200),
)
