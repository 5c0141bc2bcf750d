"""What a device can do at best: operations a second by precision, memory traffic, and what a launch costs the host."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

# In the order they are shown. "float32" is without TF32; "float8" is e4m3, multiplied and added up in float32.
PRECISIONS = ("float64", "float32", "tf32", "float16", "bfloat16", "float8")


@dataclass(frozen=True, slots=True)
class Roofline:
    """Figures of one device. What is not known of it is absent or None, never 0."""

    # As torch names it.
    device: str
    # 10^12 operations a second of a dense matrix product, by the names of PRECISIONS; a multiply-add is two.
    tflops: dict[str, float]
    # 10^9 bytes a second, read and written together.
    memory_gb_s: float
    # Host time of one launch; None in a data sheet.
    launch_us: float | None
    source: Literal["measured", "data sheet"]
    # The version it was measured with, "" in a data sheet.
    torch: str

    @property
    def is_sound(self) -> bool:
        """Whether every figure can be one: files come from elsewhere, and their readers divide by these."""
        launch = () if self.launch_us is None else (self.launch_us,)
        return bool(self.tflops) and all(
            0 < figure < math.inf for figure in (*self.tflops.values(), self.memory_gb_s, *launch)
        )
