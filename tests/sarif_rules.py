"""The rules of SARIF 2.1.0 for the parts of it that we write, as a JSON schema: a new part needs its rule.

The schema of OASIS is larger by far and open to what we never say. What is here asks for no less than it does, and for
more where services do: texts and lines have to be there, places are relative.
"""

from __future__ import annotations

import importlib
from typing import Any

Schema = dict[str, Any]


def _object(required: str, /, **properties: Schema) -> Schema:
    return {"type": "object", "required": required.split(), "properties": properties, "additionalProperties": False}


def _list(items: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": items, "minItems": least}


_TEXT: Schema = {"type": "string", "minLength": 1}
_AT: Schema = {"type": "integer", "minimum": 1}
_LEVEL: Schema = {"enum": ["none", "note", "warning", "error"]}
_ANYTHING: Schema = {"type": "object"}
_MESSAGE = _object("text", text=_TEXT)
# A reference that is relative and holds no character that has to be escaped.
_URI: Schema = {"type": "string", "pattern": r"^(?!/)(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-F]{2})+$"}
_FILE = _object("uri", uri=_URI)
_REGION = _object("startLine", startLine=_AT, startColumn=_AT, endLine=_AT, endColumn=_AT)
_LOCATION = _object(
    "physicalLocation",
    physicalLocation=_object("artifactLocation region", artifactLocation=_FILE, region=_REGION),
    logicalLocations=_list(_object("name kind", name=_TEXT, kind=_TEXT), 1),
    id={"type": "integer", "minimum": -1},
    message=_MESSAGE,
)
_REPLACEMENT = _object("deletedRegion", deletedRegion=_REGION, insertedContent=_object("text", text={"type": "string"}))
_FIX = _object(
    "description artifactChanges",
    description=_MESSAGE,
    artifactChanges=_list(
        _object("artifactLocation replacements", artifactLocation=_FILE, replacements=_list(_REPLACEMENT, 1)), 1
    ),
)
_RESULT = _object(
    "ruleId ruleIndex level message locations",
    ruleId=_TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level=_LEVEL,
    message=_MESSAGE,
    locations=_list(_LOCATION, 1),
    relatedLocations=_list(_LOCATION, 1),
    fixes=_list(_FIX, 1),
    rank={"type": "number", "minimum": -1.0, "maximum": 100.0},
    properties=_ANYTHING,
)
_RULE = _object(
    "id shortDescription",
    id=_TEXT,
    shortDescription=_MESSAGE,
    fullDescription=_MESSAGE,
    help=_MESSAGE,
    properties=_object("tags", tags={"type": "array", "items": _TEXT, "uniqueItems": True}),
)
_NOTIFICATION = _object("message level", message=_MESSAGE, level=_LEVEL)
_RUN = _object(
    "tool results columnKind",
    tool=_object("driver", driver=_object("name version rules", name=_TEXT, version=_TEXT, rules=_list(_RULE))),
    results=_list(_RESULT),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    invocations=_list(
        _object(
            "executionSuccessful",
            executionSuccessful={"type": "boolean"},
            toolExecutionNotifications=_list(_NOTIFICATION),
        )
    ),
)
_LOG = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    **_object("version runs", **{"$schema": _TEXT, "version": {"const": "2.1.0"}, "runs": _list(_RUN, 1)}),
}


def broken_rules(log: dict[str, Any]) -> list[str]:
    """What is wrong with a log, a sentence each."""
    errors = importlib.import_module("jsonschema").Draft7Validator(_LOG).iter_errors(log)
    found = [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]
    if found:
        return found
    for run in log["runs"]:
        found += _of_run(run)
    return found


def _of_run(run: dict[str, Any]) -> list[str]:
    """What a schema cannot say."""
    ids = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    found = [] if len(ids) == len(set(ids)) else ["a rule is there twice"]
    for number, result in enumerate(run["results"]):
        if ids[result["ruleIndex"] : result["ruleIndex"] + 1] != [result["ruleId"]]:
            found.append(f"result {number}: ruleIndex is of another rule")
        places = [*result["locations"], *result.get("relatedLocations", ())]
        regions = [place["physicalLocation"]["region"] for place in places]
        changes = [change for fix in result.get("fixes", ()) for change in fix["artifactChanges"]]
        regions += [one["deletedRegion"] for change in changes for one in change["replacements"]]
        found += [f"result {number}: {region} ends before it begins" for region in regions if _is_reversed(region)]
        numbers = [place["id"] for place in result.get("relatedLocations", ()) if "id" in place]
        if len(numbers) != len(set(numbers)):
            found.append(f"result {number}: two related places have one id")
    return found


def _is_reversed(region: dict[str, int]) -> bool:
    start = (region["startLine"], region.get("startColumn", 1))
    return (region.get("endLine", start[0]), region.get("endColumn", start[1])) < start
