"""Peak figures of known cards as their vendors give them: dense products, no sparsity.

GeForce cards multiply 16 and 8 bits at the rate for sums in float32, as torch does it; the higher figure of an
advertisement is for sums in 16 bits. float64 is that of tensor cores where there are any for it. A figure that no sheet
gives is left out, and so is a card with a name that stands for several: a laptop's, a slice of a MIG.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from flatout.records.roofline import PRECISIONS, Roofline


class _Card(NamedTuple):
    """`name`: a pattern for all of torch's name but the maker's and the family's words in front."""

    name: str
    memory_gb_s: float
    float32: float
    tf32: float | None
    float16: float
    bfloat16: float | None
    float64: float | None = None
    float8: float | None = None


_FAMILIES = r"(?:NVIDIA |AMD )?(?:Tesla |GeForce |Instinct )?"

# Where one name was sold with two memories (RTX 3060, 3060 Ti, 3080, 4070), these are the figures of the first.
_CARDS = (
    # Data centre: Volta, Turing.
    _Card(r"V100-SXM2-(16|32)GB", 900, 15.7, None, 125, None, 7.8),
    _Card(r"V100-PCIE-(16|32)GB", 900, 14, None, 112, None, 7),
    _Card(r"V100S-PCIE-32GB", 1134, 16.4, None, 130, None, 8.2),
    _Card(r"T4", 300, 8.1, None, 65, None),
    # Data centre: Ampere.
    _Card(r"A100-(SXM4|PCIE)-40GB", 1555, 19.5, 156, 312, 312, 19.5),
    _Card(r"A100-SXM4?-80GB", 2039, 19.5, 156, 312, 312, 19.5),
    _Card(r"A100 80GB PCIe", 1935, 19.5, 156, 312, 312, 19.5),
    _Card(r"A10", 600, 31.2, 62.5, 125, 125),
    _Card(r"A10G", 600, 35, 35, 70, 70),
    _Card(r"A30", 933, 10.3, 82, 165, 165, 10.3),
    _Card(r"A40", 696, 37.4, 74.8, 149.7, 149.7),
    # Data centre: Ada.
    _Card(r"L4", 300, 30.3, 60, 121, 121, None, 242.5),
    _Card(r"L40", 864, 90.5, 90.5, 181, 181, None, 362),
    _Card(r"L40S", 864, 91.6, 183, 362, 362, None, 733),
    # Data centre: Hopper.
    _Card(r"H100 (SXM5?|80GB HBM3)", 3350, 67, 494.7, 989.4, 989.4, 67, 1978.9),
    _Card(r"H100 PCIe", 2039, 51.2, 378, 756, 756, 51.2, 1513),
    _Card(r"H100 NVL", 3900, 60, 417.5, 835.5, 835.5, 60, 1670.5),
    _Card(r"H200( SXM)?", 4800, 67, 494.7, 989.4, 989.4, 67, 1978.9),
    _Card(r"H200 NVL", 4800, 60, 417.5, 835.5, 835.5, 60, 1670.5),
    _Card(r"H20", 4000, 44, 74, 148, 148, 1, 296),
    # The size is that of the processor's memory in the first two names, and the card's in the third.
    _Card(r"GH200 (480|120)GB", 4000, 67, 494.7, 989.4, 989.4, 67, 1978.9),
    _Card(r"GH200 144G HBM3e", 4900, 67, 494.7, 989.4, 989.4, 67, 1978.9),
    # Data centre: Blackwell.
    _Card(r"B100", 8000, 60, 875, 1750, 1750, 30, 3500),
    _Card(r"B200", 7700, 75, 1125, 2250, 2250, 37, 4500),
    _Card(r"GB200", 8000, 80, 1250, 2500, 2500, 40, 5000),
    _Card(r"B300( SXM6 AC)?", 8000, 75, 1125, 2250, 2250, 1.25, 4500),
    # Workstations: Ampere, Ada, Blackwell.
    _Card(r"RTX A4000", 448, 19.2, 38.3, 76.7, 76.7),
    _Card(r"RTX A5000", 768, 27.8, 55.6, 111.1, 111.1),
    _Card(r"RTX A6000", 768, 38.7, 77.4, 154.8, 154.8),
    _Card(r"RTX 6000 Ada Generation", 960, 91.1, 182.1, 364.2, 364.2, None, 728.5),
    _Card(r"RTX PRO 6000 Blackwell Workstation Edition", 1792, 126, 251.9, 503.8, 503.8, None, 1007.6),
    # GeForce: Ampere.
    _Card(r"RTX 3060", 360, 12.7, 12.7, 25.5, 25.5),
    _Card(r"RTX 3060 Ti", 448, 16.2, 16.2, 32.4, 32.4),
    _Card(r"RTX 3070", 448, 20.3, 20.3, 40.6, 40.6),
    _Card(r"RTX 3070 Ti", 608, 21.7, 21.7, 43.5, 43.5),
    _Card(r"RTX 3080", 760, 29.8, 29.8, 59.5, 59.5),
    _Card(r"RTX 3080 Ti", 912, 34.1, 34.1, 68.2, 68.2),
    _Card(r"RTX 3090", 936, 35.6, 35.6, 71, 71),
    _Card(r"RTX 3090 Ti", 1008, 40, 40, 80, 80),
    # GeForce: Ada.
    _Card(r"RTX 4060", 272, 15.1, 15.1, 30.2, 30.2, None, 60.5),
    _Card(r"RTX 4060 Ti", 288, 22.1, 22.1, 44.1, 44.1, None, 88.2),
    _Card(r"RTX 4070", 504, 29.1, 29.1, 58.3, 58.3, None, 116.6),
    _Card(r"RTX 4070 SUPER", 504, 35.5, 35.5, 71, 71, None, 141.9),
    _Card(r"RTX 4070 Ti", 504, 40.1, 40.1, 80.2, 80.2, None, 160.4),
    _Card(r"RTX 4070 Ti SUPER", 672, 44.1, 44.1, 88.2, 88.2, None, 176.4),
    _Card(r"RTX 4080", 716.8, 48.7, 48.7, 97.5, 97.5, None, 194.9),
    _Card(r"RTX 4080 SUPER", 736, 52.2, 52.2, 104.4, 104.4, None, 208.9),
    _Card(r"RTX 4090", 1008, 82.6, 82.6, 165.2, 165.2, None, 330.3),
    # GeForce: Blackwell.
    _Card(r"RTX 5070", 672, 30.9, 30.9, 61.7, 61.7, None, 123.5),
    _Card(r"RTX 5070 Ti", 896, 43.9, 43.9, 87.9, 87.9, None, 175.8),
    _Card(r"RTX 5080", 960, 56.3, 56.3, 112.6, 112.6, None, 225.1),
    _Card(r"RTX 5090", 1792, 104.8, 104.8, 209.5, 209.5, None, 419),
    # AMD. torch sees each half of an MI250X as a device: these are the figures of one.
    _Card(r"MI250X", 1638, 47.9, None, 191.5, 191.5, 47.9),
    _Card(r"MI300X", 5300, 163.4, 653.7, 1307.4, 1307.4, 163.4, 2614.9),
)


def data_sheet(device_name: str) -> Roofline | None:
    """The figures for a device that torch gives this name; None where no card is known by it.

    A pattern has to match the whole name, so no order among them is needed: "RTX 4070 Ti" is no "RTX 4070".
    """
    for card in _CARDS:
        if re.fullmatch(_FAMILIES + card.name, device_name.strip(), re.IGNORECASE):
            given = card._asdict()
            tflops = {name: given[name] for name in PRECISIONS if given[name] is not None}
            return Roofline(device_name, tflops, card.memory_gb_s, None, "data sheet", "")
    return None
