"""Data sheets are found by the name that torch gives a device, and only by that of a whole card that is known."""

from __future__ import annotations

import pytest

from flatout.model.data_sheets import data_sheet
from flatout.records.roofline import PRECISIONS

# As torch.cuda.get_device_name() has them.
NAMES = [
    "Tesla V100-SXM2-32GB",
    "Tesla V100-PCIE-16GB",
    "Tesla V100S-PCIE-32GB",
    "Tesla T4",
    "NVIDIA A100-SXM4-40GB",
    "NVIDIA A100-PCIE-40GB",
    "NVIDIA A100-SXM4-80GB",
    "NVIDIA A100 80GB PCIe",
    "NVIDIA A10",
    "NVIDIA A10G",
    "NVIDIA A30",
    "NVIDIA A40",
    "NVIDIA L4",
    "NVIDIA L40",
    "NVIDIA L40S",
    "NVIDIA H100 80GB HBM3",
    "NVIDIA H100 PCIe",
    "NVIDIA H100 NVL",
    "NVIDIA H200",
    "NVIDIA H200 NVL",
    "NVIDIA H20",
    "NVIDIA GH200 480GB",
    "NVIDIA GH200 144G HBM3e",
    "NVIDIA B200",
    "NVIDIA GB200",
    "NVIDIA B300 SXM6 AC",
    "NVIDIA RTX A4000",
    "NVIDIA RTX A5000",
    "NVIDIA RTX A6000",
    "NVIDIA RTX 6000 Ada Generation",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    *(
        f"NVIDIA GeForce RTX {model}"
        for model in (
            "3060",
            "3060 Ti",
            "3070",
            "3070 Ti",
            "3080",
            "3080 Ti",
            "3090",
            "3090 Ti",
            "4060",
            "4060 Ti",
            "4070",
            "4070 SUPER",
            "4070 Ti",
            "4070 Ti SUPER",
            "4080",
            "4080 SUPER",
            "4090",
            "5070",
            "5070 Ti",
            "5080",
            "5090",
        )
    ),
    "AMD Instinct MI250X",
    "AMD Instinct MI300X",
]


def tflops(name: str, precision: str) -> float:
    sheet = data_sheet(name)
    assert sheet is not None, name
    return sheet.tflops[precision]


@pytest.mark.parametrize("name", NAMES)
def test_a_known_card_has_sound_figures(name: str) -> None:
    sheet = data_sheet(name)

    assert sheet is not None and sheet.is_sound
    assert (sheet.device, sheet.source, sheet.torch, sheet.launch_us) == (name, "data sheet", "", None)
    assert set(sheet.tflops) <= set(PRECISIONS)
    # Half the width is never slower, and no product of today does more than that of a B200 in float8.
    rates = [sheet.tflops[name] for name in ("float32", "tf32", "float16", "float8") if name in sheet.tflops]
    assert rates == sorted(rates) and rates[-1] <= 5000
    assert sheet.tflops.get("bfloat16", sheet.tflops["float16"]) == sheet.tflops["float16"]


def test_the_figures_of_an_h200_are_dense() -> None:
    sheet = data_sheet("NVIDIA H200")

    assert sheet is not None and sheet.memory_gb_s == 4800
    assert sheet.tflops == {
        "float64": 67,
        "float32": 67,
        "tf32": 494.7,
        "float16": 989.4,
        "bfloat16": 989.4,
        "float8": 1978.9,
    }


def test_a_longer_name_is_another_card() -> None:
    assert tflops("NVIDIA A10", "bfloat16") > tflops("NVIDIA A10G", "bfloat16")
    assert tflops("NVIDIA L40S", "bfloat16") > tflops("NVIDIA L40", "bfloat16") > tflops("NVIDIA L4", "bfloat16")
    assert tflops("NVIDIA H100 80GB HBM3", "tf32") > tflops("NVIDIA H100 NVL", "tf32") > tflops("NVIDIA H20", "tf32")
    assert tflops("NVIDIA GeForce RTX 4070 Ti", "tf32") > tflops("NVIDIA GeForce RTX 4070", "tf32")


def test_what_a_card_has_not_got_is_absent() -> None:
    turing = data_sheet("Tesla T4")

    assert turing is not None and not {"tf32", "bfloat16", "float8"} & set(turing.tflops)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "cpu",
        "NVIDIA",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA H200 MIG 3g.71gb",
        "NVIDIA GeForce RTX 3080 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "Quadro RTX 6000",
        "NVIDIA T400",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "AMD Instinct MI250X / MI250",
    ],
)
def test_other_names_have_no_data_sheet(name: str) -> None:
    assert data_sheet(name) is None
