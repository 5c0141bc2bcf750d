"""How the ranks of a run compare: what each does on its own, and how long it waits for the others."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from flatout.records.evidence import Evidence
from flatout.records.message import Message, message
from flatout.records.report import RankUse

# Ranks that train together take equally long for a step, whichever is slow.
_TOGETHER = 0.1
# Where a rank waits for the others: the gradients are summed in backward, results are waited for in a sync.
_WAITING = ("backward", "sync")


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds a step of one rank: by phase, on its device where that was timed; and its waiting and own time."""

    rank: RankUse
    phase_ms: dict[str, float]
    waiting_ms: float
    own_ms: float


def name_of(rank: RankUse) -> Message:
    if rank.rank is None:
        return message("rank.process", pid=rank.pid)
    return message("rank.number", rank=rank.rank)


def rank_times(run: Evidence) -> list[Times]:
    """All ranks; empty for a single one, or for processes that do not step together."""
    ranks = run.report.ranks
    steps_ms = [rank.step_ms for rank in ranks if rank.step_ms]
    if len(ranks) < 2 or len(steps_ms) < len(ranks) or max(steps_ms) > (1 + _TOGETHER) * min(steps_ms):
        return []
    on_device = len(run.rank_device_ms) == len(ranks) and all(
        "backward" in device_ms for device_ms in run.rank_device_ms
    )
    found = []
    for at, rank in enumerate(ranks):
        if on_device:
            phase_ms = {name: ms for name, ms in run.rank_device_ms[at].items() if name != "step"}
            waiting_ms = phase_ms["backward"]
        else:
            phase_ms = dict(rank.phase_ms)
            waiting_ms = sum(phase_ms.get(name, 0.0) for name in _WAITING)
        found.append(Times(rank, phase_ms, waiting_ms, sum(phase_ms.values()) - waiting_ms))
    return found


def delays_ms(run: Evidence, of: Times) -> list[float]:
    """How much longer than the others this rank took on its own, in each part of the run; empty where not known."""
    parts = run.rank_parts_ms
    at = next(at for at, rank in enumerate(run.report.ranks) if rank is of.rank)
    if len(parts) != len(run.report.ranks):
        return []
    own = [
        [sum(ms for name, ms in part.items() if name not in _WAITING) for part in rank_parts] for rank_parts in parts
    ]
    return [
        mine
        - typical_ms([parts_ms[part] for number, parts_ms in enumerate(own) if number != at and part < len(parts_ms)])
        for part, mine in enumerate(own[at])
    ]


def all_but(of: list[Times], but: Times) -> list[Times]:
    return [rank for rank in of if rank is not but]


def typical_ms(values: list[float]) -> float:
    return float(median(values)) if values else 0.0


def samples_per_step(rank: RankUse) -> float | None:
    return rank.samples_per_s * rank.step_ms * 1e-3 if rank.samples_per_s and rank.step_ms else None
