"""In which order remedies are tried: first what is lossless, then what stands in the way of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flatout.app.fixing.screening import switched
from flatout.app.fixing.sizes import BEGINS_S
from flatout.app.plan import per_risk, together
from flatout.records.plan import Planned
from flatout.remedies.catalogue import SAFETIES, known

Group = Sequence[Planned]

# What makes the device quicker shows little as long as launching holds it up.
LAUNCHING = ("graphs.model",)
QUICKENING = ("precision.", "layout.", "cudnn.", "optimizer.fused")
# A coarser rounding has to gain so much more than a finer one.
_WORTH_ITS_ROUNDING = 1.05


@dataclass(frozen=True, slots=True)
class Order:
    """Groups of remedies that are tried together; `able` can be switched in mid-training, and come before `last`."""

    first: list[Group]
    second: list[Group]
    able: list[Planned]
    last: list[Group]


def ordered(remedies: Sequence[Planned], is_slight: Callable[[Group], bool]) -> Order:
    """`is_slight`: whether so little is expected of them that it takes many trials to be seen."""
    able = switched(remedies)
    groups: list[Group] = list(together([one for one in remedies if one not in able]))
    last = [group for group in groups if is_slight(group)]
    last += [group for group in groups if group not in last and group[0].id in BEGINS_S]
    soon = [group for group in groups if group not in last]
    first = [group for group in soon if all(one.safety == SAFETIES[0] for one in group)]
    soon = [group for group in soon if group not in first]
    # What can be switched seldom promises anything: taking turns can wait for what does.
    promising = [group for group in soon if all(per_risk(group[0]) > per_risk(one) for one in able)]
    second = [group for group in soon if group in promising or group[0].id in LAUNCHING]
    return Order(first, second, able, [*(group for group in soon if group not in second), *last])


def quickens(group: Group) -> bool:
    """Whether all of it makes the device itself quicker."""
    return all(one.id.startswith(QUICKENING) for one in group)


def finest_first(able: Sequence[Planned]) -> list[Planned]:
    return sorted(able, key=_rounds)


def worth_its_rounding(helpful: Sequence[Planned], gain_of: Callable[[Planned], float]) -> list[Planned]:
    """Without a coarser rounding that gains hardly more than a finer one."""
    coarse = _coarse(helpful)
    finer = max((gain_of(one) for one in helpful if one not in coarse and _rounds(one)), default=0.0)
    return [one for one in helpful if one not in coarse or gain_of(one) > _WORTH_ITS_ROUNDING * finer]


def _coarse(able: Sequence[Planned]) -> list[Planned]:
    """Those that round more than the finest that rounds at all: such products gain the same way, and may gain more."""
    finest = min((by for one in able if (by := _rounds(one))), default=0.0)
    return [one for one in able if _rounds(one) > finest]


def _rounds(one: Planned) -> float:
    return known()[one.id].rounds
