"""What copies to the device cost, and what is left of it when they no longer block."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flatout.problems.hot_lines import place_name
from flatout.problems.prediction import by_sparing_host
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import CopySite, Gain

# Bytes a millisecond that copies of pinned memory reach over the bus of a card: PCIe 5, 4 or 3 with 16 lanes. 55 GB/s
# were measured on an H200. The run's own bus is not measured.
_BUS = (
    (re.compile(r"\b(H100|H200|H800|H20|B100|B200|B300|RTX PRO \d000|RTX 50\d0)\b"), 55e6),
    (re.compile(r"\b(A100|A800|A30|A10G?|A40|A16|A2|L4|L40S?|RTX A\d000|RTX \d000 Ada|RTX [34]0\d0)\b"), 25e6),
)
_SLOWEST_BUS = 12e6
# What the loader's pinning thread copies from shared into pinned memory: measured on a host with an H200, with batches
# of 40 to 105 MiB. For large batches that is slower than the driver's own copy of pageable memory.
_PINNING_BYTES_PER_MS = 2.4e6
# Enqueueing a copy takes the host about this long, whatever its size.
_ASKING_MS = 0.01
_SMALL_BYTES = 64 << 10
_EVALUATING = re.compile(r"eval|valid|test|infer|predict|checkpoint|load", re.I)


def training_copies(run: Evidence) -> list[CopySite]:
    """Of the training step, the dearest first."""
    found = [site for site in run.report.copies if site.per_step > 0 and not _EVALUATING.search(site.function)]
    return sorted(found, key=lambda site: -site.ms)


def is_small(site: CopySite) -> bool:
    return site.bytes_per_step / max(site.per_step, 1e-9) < _SMALL_BYTES


def moving_ms(run: Evidence, size: float) -> float:
    """What the bus takes for so many bytes of pinned memory, by the kind of card."""
    name = run.report.run.device
    return size / next((rate for pattern, rate in _BUS if pattern.search(name)), _SLOWEST_BUS)


def pinned_part(sites: Sequence[CopySite]) -> float:
    """By bytes."""
    total = sum(site.bytes_per_step for site in sites)
    return sum(site.pinned_share * site.bytes_per_step for site in sites) / total if total else 0.0


def unblocked_part(sites: Sequence[CopySite]) -> float:
    total = sum(site.bytes_per_step for site in sites)
    return sum(site.non_blocking_share * site.bytes_per_step for site in sites) / total if total else 0.0


def blocked_ms(run: Evidence, sites: Sequence[CopySite]) -> float:
    """What these copies hold the host up in a step: never more than the phase, which leaves evaluations out."""
    held_ms = min(sum(site.ms for site in sites), run.phase("h2d").ms)
    return max(0.0, held_ms - _ASKING_MS * sum(site.per_step for site in sites))


def gain_unblocked(run: Evidence, sites: Sequence[CopySite], to_pin: bool) -> Gain | None:
    """The host no longer waits for the copies; they still take their time of the device's queue.

    `to_pin`: a thread of the loader's has to pin them first, and no step is shorter than that.
    """
    held_ms = blocked_ms(run, sites)
    bytes_ = sum(site.bytes_per_step for site in sites)
    bus_ms = moving_ms(run, bytes_)
    pinning_ms = bytes_ / _PINNING_BYTES_PER_MS if to_pin else 0.0
    figures = {"blocked_ms": held_ms, "step_ms": run.step_ms, "bus_ms": bus_ms}
    if to_pin:
        method = message("transfer.unblocked_by_pinning", **figures, pinning_ms=pinning_ms)
    else:
        method = message("transfer.unblocked", **figures)
    return by_sparing_host(run, held_ms, method, device_ms=-bus_ms, floor_ms=pinning_ms)


def mib_per_step(sites: Sequence[CopySite]) -> float:
    return sum(site.bytes_per_step for site in sites) / 2**20


def list_sites(sites: Sequence[CopySite]) -> str:
    """The dearest of them: where, how often, how much."""
    return ", ".join(
        f"{place_name(s.location)} {s.per_step:.3g}x {s.bytes_per_step / 2**20:.3g} MiB" for s in sites[:4]
    )
