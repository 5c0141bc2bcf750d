"""The training steps that are timed: one that does next to nothing, and ones of a wanted length on this machine."""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import child

TRAINING = child.CHILDREN / "training.py"
KINDS = ("trivial", "2ms", "10ms")
# A round of an arm times about this long; shorter rounds and more of them beat long ones under drift.
_TIMED_S = 2.0
_BLOCKS = 15


@dataclass(frozen=True, slots=True)
class Step:
    """A step of `training.py` and how to divide its timing into blocks."""

    name: str
    device: str
    depth: int
    block_steps: int
    blocks: int = _BLOCKS

    def arguments(self, out: Path, arm: str) -> list[str]:
        """The command line of `training.py`."""
        sizes = ["--depth", self.depth, "--block-steps", self.block_steps, "--blocks", self.blocks]
        return [str(out), "--arm", arm, "--device", self.device, *map(str, sizes)]


def make(name: str, device: str, scratch: Path) -> Step:
    """The step of this name, its depth fitted to this machine."""
    if name == "trivial":
        us = _time_us(Step(name, device, 0, 100, 5), scratch)
        return Step(name, device, 0, _block_steps(us))
    target_us = 1000.0 * float(name.removesuffix("ms"))
    shallow, deep = (4, 12) if device == "cuda" else (1, 4)
    low, high = (_time_us(Step(name, device, depth, 10, 5), scratch) for depth in (shallow, deep))
    per_layer = max((high - low) / (deep - shallow), 1.0)
    depth = max(1, round(shallow + (target_us - low) / per_layer))
    return Step(name, device, depth, _block_steps(target_us))


def _block_steps(us_per_step: float) -> int:
    return max(5, round(_TIMED_S * 1e6 / _BLOCKS / us_per_step))


def _time_us(step: Step, scratch: Path) -> float:
    out = scratch / "calibration.json"
    child.run([sys.executable, str(TRAINING), *step.arguments(out, "bare")], cwd=scratch)
    return median_us(out)


def median_us(out: Path, clock: str = "us_per_step") -> float:
    """Microseconds a step, the median of a child's blocks; `cpu_us_per_step` for its thread's CPU time."""
    blocks = child.read_json(out)[clock]
    assert isinstance(blocks, list) and blocks, out
    return statistics.median(float(b) for b in blocks)
