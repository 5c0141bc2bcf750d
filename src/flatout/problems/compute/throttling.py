"""The GPU lowers its clock because of heat or power.

What it is: the card runs below its clock because it is too hot, its power supply is at its limit, or its power cap is
reached.

Why the GPU idles: it does not, though its utilisation looks perfect: every kernel takes longer.

How it shows in a run: the reasons that the driver gives for the lower clock, with the share of the time, and the
clock against the highest of the run.

The fix: heat: air flow, dust, fans, the place in the chassis, fewer hot neighbours. Power brake or hardware slowdown:
supply and cabling. Power cap: `nvidia-smi -q -d POWER`; raise the limit if somebody lowered it.

What to expect: device time shrinks as the clock rises to the highest of this run.

When it is fine: large matrix products reach the power cap of a healthy card; that is normal.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessStep
from flatout.model.prediction import predict
from flatout.problems.compute.device import is_gpu_bound
from flatout.problems.found import FoundInRun
from flatout.records.evidence import Evidence, GpuState
from flatout.records.message import message, verbatim

CODE = "CO504"
# Names of `records.sample.THROTTLE_REASONS`.
_POWER_CAP = "power cap"
_HOT = {"software thermal", "hardware thermal"}
_NAMED = {*_HOT, "hardware slowdown", "power brake", "sync boost"}
_OFTEN = 0.1


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    worst = max(run.gpus, key=_throttled_share, default=None)
    if not run.on_gpu or worst is None or _throttled_share(worst) < _OFTEN:
        return
    edits = _edits(run, worst)
    reasons = sorted((name for name in worst.throttled if name != _POWER_CAP), key=lambda name: -worst.throttled[name])
    yield FoundInRun(
        evidence={
            "gpu": worst.gpu,
            "reasons": ", ".join(reasons),
            "throttled_share": round(_throttled_share(worst), 3),
            "clock_mhz": round(worst.slowed_clock_mhz or 0.0),
            "best_clock_mhz": round(worst.best_clock_mhz or 0.0),
            "temperature_c": round(worst.temperature_c or 0.0),
        },
        cause=message(
            "co504.cause",
            gpu=worst.gpu,
            share=_throttled_share(worst),
            reasons=tuple(
                message(f"co504.{name.replace(' ', '_')}") if name in _NAMED else verbatim(name) for name in reasons
            ),
            clock_mhz=worst.slowed_clock_mhz or 0,
            best_clock_mhz=worst.best_clock_mhz or 0,
        ),
        change=message("co504.change_cooling" if _HOT.intersection(reasons) else "co504.change_power"),
        edits=edits,
        severity=None if edits is not None else "medium",
    )


def _throttled_share(state: GpuState) -> float:
    """Share of the time in which heat or supply holds it down; the power cap is how a busy card is kept in bounds."""
    return max((share for name, share in state.throttled.items() if name != _POWER_CAP), default=0.0)


def _edits(run: Evidence, worst: GpuState) -> Edits | None:
    if not is_gpu_bound(run) or not worst.slowed_clock_mhz or not worst.best_clock_mhz:
        return None
    slowed_ms = _throttled_share(worst) * (run.device_busy_ms or run.step_ms)
    saved_ms = slowed_ms * max(0.0, 1 - worst.slowed_clock_mhz / worst.best_clock_mhz)
    edits = Edits((LessStep(saved_ms),), worst=(LessStep(0.5 * saved_ms),))
    return edits if predict(run, edits) is not None else None
