"""The record of a fix and its trials, read again from their JSON; also those of an older or newer flatout."""

from __future__ import annotations

from typing import Any

from flatout.errors import FlatoutError
from flatout.records.fix import SCHEMA, Fix
from flatout.records.trial import Trial
from flatout.words.codec import decode

# What a report needs of a trial; the states of its remedies are left out.
_OF_TRIAL = ("arm", "remedies", "ending", "why", "run", "wall_s", "step_s", "samples", "losses")


def fix_from_json(value: dict[str, Any]) -> Fix:
    """The fix that `report.fix.to_json` wrote."""
    if value.get("schema") != SCHEMA:
        found = value.get("schema")
        raise FlatoutError(f"the fix has schema {found!r}, this flatout reads {SCHEMA}: use the one that wrote it")
    try:
        return decode(Fix, value)
    except TypeError as error:
        raise FlatoutError(f"the record of the fix lacks what it needs ({error}); make it again") from error


def trial_from_json(value: dict[str, Any]) -> Trial:
    return decode(Trial, {name: item for name, item in value.items() if name in (*_OF_TRIAL, "facts")})
