"""Numbers so close to zero that the processor computes them slowly.

What it is: values that fade and are never set to zero: the trace of an exponential decay, the tail of a sound, a window
function, weights that a regularizer shrinks. Below 1e-38 a float32 is stored without its leading one (subnormal).

Why the GPU idles: it does not, and GPUs compute such numbers at full speed. Many processors leave their quick path for
each of them: a product takes ten to a hundred times as long.

How it shows in a run: in a window over a few steps, an input of one of the heaviest matrix products or convolutions on
the host has such numbers. The operation is timed with a part of these values, and with zeros in their place, when the
run has ended.

The fix: `torch.set_flush_denormal(True)` at the start of the script, before torch computes anything: such numbers
become zero wherever they arise. Or set them to zero where the values fade: `trace[trace < 1e-20] = 0`.

What to expect: the difference of the two times, and as much again from element-wise work on the same values. Losses
stay the same but for rounding.

When it is fine: the processor computes them at full speed, as many Arm processors do: then it is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits
from flatout.problems.compute.device import spare_passes, within_line
from flatout.problems.found import KEEPS_FROM_HEALTH, FoundInRun
from flatout.problems.hot_lines import place_name
from flatout.records.evidence import Evidence, HeavyLine
from flatout.records.message import message

CODE = "CO521"
REMEDY = "precision.flush_denormal"
# Of what was timed: what else is computed from these values is not, and steps differ in how many they have.
_PARTS = (0.5, 1.0, 1.5)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    saved = [(line, _saved(run, line)) for line in run.heavy_lines if line.subnormals]
    saved = [(line, times) for line, times in saved if sum(times) > 0]
    forward_ms, backward_ms = (sum(times[place] for _, times in saved) for place in (0, 1))
    if not saved or forward_ms + backward_ms < KEEPS_FROM_HEALTH * run.step_ms:
        return
    worst = max(saved, key=lambda each: sum(each[1]))[0]
    share = max(found.share for found in worst.subnormals)
    yield FoundInRun(
        location=worst.location,
        evidence={
            "subnormal_share": round(share, 5),
            "operations_per_step": round(sum(found.uses for line, _ in saved for found in line.subnormals), 2),
            "saved_ms_per_step": round(forward_ms + backward_ms, 3),
        },
        cause=message(
            "co521.cause",
            share=share,
            line=place_name(worst.location),
            ms=forward_ms + backward_ms,
            step_ms=run.step_ms,
        ),
        change=message("co521.change"),
        edits=Edits.between(spare_passes(run, part * forward_ms, part * backward_ms) for part in _PARTS),
    )


def _saved(run: Evidence, line: HeavyLine) -> tuple[float, float]:
    # Either pass multiplies with it once. What was not timed is not promised.
    once_ms = sum(
        found.uses * max(0.0, found.slow_ms - found.quick_ms) / 2
        for found in line.subnormals
        if found.slow_ms is not None and found.quick_ms is not None
    )
    return within_line(run, line.location, once_ms)
