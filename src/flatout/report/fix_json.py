"""The record of a fix and its trials, read again from their JSON; also those of an older or newer flatout."""

from __future__ import annotations

from typing import Any

from flatout.errors import FlatoutError
from flatout.records.fix import SCHEMA, Fix, Quality, Tried
from flatout.records.plan import LeftOut, Planned
from flatout.records.proof import Ceiling, Decision, Envelope, Hours, Identity, MeasuredGain, MetricVerdict
from flatout.records.report import Gain
from flatout.records.trial import Trial
from flatout.report.json import verdict_from_json
from flatout.report.kinds import check


def fix_from_json(value: dict[str, Any]) -> Fix:
    """The fix that `report.fix.to_json` wrote."""
    if value.get("schema") != SCHEMA:
        found = value.get("schema")
        raise FlatoutError(f"the fix has schema {found!r}, this flatout reads {SCHEMA}: use the one that wrote it")
    try:
        made: Fix = _made(
            Fix,
            {
                **value,
                "command": tuple(value["command"]),
                "verdict": verdict_from_json(value["verdict"]),
                "tried": tuple(_tried(one) for one in value["tried"]),
                "left_out": tuple(_made(LeftOut, one) for one in value["left_out"]),
                "gain": _gain(value["gain"]),
                "hours_before": _optional(Hours, value["hours_before"]),
                "hours_after": _optional(Hours, value["hours_after"]),
                "ceiling": _ceiling(value["ceiling"]),
                "quality": _quality(value["quality"]),
                "written": tuple(value.get("written", ())),
                "sources": tuple(value.get("sources", ())),
                "notices": tuple(value.get("notices", ())),
            },
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise FlatoutError(f"the record of the fix lacks what it needs ({error}); make it again") from error
    return made


def trial_from_json(value: dict[str, Any]) -> Trial:
    """What a report needs of a trial; the states of its remedies are left out."""
    lists = {name: tuple(value.get(name, ())) for name in ("step_s", "samples", "losses")}
    kept: dict[str, Any] = {
        name: value[name] for name in ("arm", "remedies", "ending", "why", "run", "wall_s") if name in value
    }
    made: Trial = _made(Trial, {**kept, **lists})
    return made


def _tried(one: dict[str, Any]) -> Tried:
    planned = one["planned"]
    decision = one["decision"]
    made: Tried = _made(
        Tried,
        {
            **one,
            "planned": _made(
                Planned,
                {**planned, "codes": tuple(planned["codes"]), "predicted": _optional(Gain, planned["predicted"])},
            ),
            "decision": None if decision is None else _made(Decision, {**decision, "gain": _gain(decision["gain"])}),
            "identity": _optional(Identity, one.get("identity")),
            "together": tuple(one.get("together") or ()),
        },
    )
    return made


def _gain(value: dict[str, Any] | None) -> MeasuredGain | None:
    if value is None:
        return None
    made: MeasuredGain = _made(MeasuredGain, {**value, "trials": tuple(value["trials"])})
    return made


def _ceiling(value: dict[str, Any] | None) -> Ceiling | None:
    if value is None:
        return None
    made: Ceiling = _made(Ceiling, {**value, "reached": _gain(value["reached"])})
    return made


def _quality(value: dict[str, Any]) -> Quality:
    return Quality(
        _optional(Identity, value.get("identity")),
        _optional(Envelope, value.get("envelope")),
        _optional(MetricVerdict, value.get("metric")),
    )


def _optional(kind: Any, value: dict[str, Any] | None) -> Any:
    return None if value is None else _made(kind, value)


def _made(kind: Any, value: dict[str, Any]) -> Any:
    """A record from its JSON, whose lists are tuples here; keys that a newer flatout added are left out."""
    known = {name: item for name, item in value.items() if name in kind.__slots__}
    known = {name: tuple(item) if isinstance(item, list) else item for name, item in known.items()}
    check(kind, known)
    return kind(**known)
