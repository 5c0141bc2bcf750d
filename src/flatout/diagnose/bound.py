"""What bounds a run: decided by how the step divides, not by utilisation.

Each cause gets the share of the step that removing it could save at most. On a GPU the host's own division is not
enough: a host that waits in `.item()` while the device computes loses nothing. So input counts as far as the device
starved, and the host's phases as far as the device was found with nothing left to do (drained). Utilisation alone names
no cause: it only bounds what copies and waits can have cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flatout.records.report import Bound, Cost, Finding, GpuUse, Grounds, PhaseShare, Verdict
from flatout.records.sentences import in_english

# Below this a cause is not worth fixing; from `_BINDS` on the largest names the bound.
WORTH_FIXING = 0.05
_BINDS = 0.10
# Two causes this close to each other share the blame.
_EVEN = 0.8

_HOST_PHASES = ("forward", "backward", "optimizer", "other", "gc")
_CADENCE = ("eval", "checkpoint", "logging")


@dataclass(frozen=True, slots=True)
class Removable:
    """Shares of the step (0..1) that each cause costs at most; the rest is computing."""

    input: float
    transfer: float
    sync: float
    host: float
    cadence: float

    def ranked(self) -> list[tuple[Bound, float]]:
        causes: list[tuple[Bound, float]] = [
            ("input", self.input),
            ("transfer", self.transfer),
            ("sync", self.sync),
            ("host", self.host),
            ("cadence", self.cadence),
        ]
        return sorted(causes, key=lambda cause: -cause[1])

    @property
    def compute(self) -> float:
        return max(0.0, 1.0 - sum(share for _, share in self.ranked()))


def removable(phases: Mapping[str, PhaseShare], gpu: GpuUse | None, on_gpu: bool) -> Removable:
    """What each cause costs, from the phases of the step and the device's timeline."""
    share = {name: phase.share for name, phase in phases.items()}
    cadence = sum(share[name] for name in _CADENCE)
    if not on_gpu:
        # The CPU itself computes: only what is between the passes is the host's.
        return Removable(share["data"], share["h2d"], share["sync"], share["other"] + share["gc"], cadence)
    starved = gpu.starved_share if gpu else None
    drained = gpu.drained_share if gpu else None
    waiting = share["data"] if starved is None else starved
    if drained is None:
        return Removable(waiting, share["h2d"], 0.0, 0.0, cadence)
    # After every wait the device has nothing queued until the host is ahead again. That idling is the wait's doing for
    # as long as the wait was; only what remains is a host too slow by itself.
    exposed = drained * sum(share[name] for name in _HOST_PHASES) - waiting
    # A wait also drains the device between the boundaries at which it was looked at: how long no kernel ran shows that.
    busy = gpu.busy_share if gpu else None
    idle = 0.0 if busy is None else max(0.0, 1.0 - busy - waiting - cadence)
    transfer = max(drained * share["h2d"], min(share["h2d"], idle))
    sync = min(share["sync"], max(0.0, exposed - transfer, idle - transfer))
    # Where the device is looked at right after a wait it is found with nothing to do, and soon has enough again.
    host = max(0.0, (exposed if busy is None else min(exposed, idle)) - transfer - sync)
    return Removable(waiting, transfer, sync, host, cadence)


def verdict(phases: Mapping[str, PhaseShare], step_ms: float | None, gpu: GpuUse | None, on_gpu: bool) -> Verdict:
    """The bound in one word, whether anything is worth fixing, and a plain sentence."""
    if step_ms is None:
        return _told("balanced", False, None)
    costs = removable(phases, gpu, on_gpu)
    first, second = (Cost(cause, share) for cause, share in costs.ranked()[:2])
    healthy = first.share < WORTH_FIXING
    if first.share < _BINDS:
        named = () if healthy else (first,)
        return _told("compute", healthy, Grounds(on_gpu, step_ms, costs.compute, named))
    if second.share >= _BINDS and second.share >= _EVEN * first.share:
        return _told("balanced", healthy, Grounds(on_gpu, step_ms, None, (first, second)))
    return _told(first.cause, healthy, Grounds(on_gpu, step_ms, None, (first,)))


def with_findings(judged: Verdict, found: Sequence[Finding]) -> Verdict:
    """A run with something worth fixing is not healthy, whatever its phases look like."""
    worth = any(one.predicted_gain is not None and one.predicted_gain.mid >= 1 + WORTH_FIXING for one in found)
    return _told(judged.bound, False, judged.grounds) if worth and judged.healthy else judged


def _told(bound: Bound, healthy: bool, grounds: Grounds | None) -> Verdict:
    return Verdict(bound, healthy, in_english(grounds, healthy), grounds)
