"""The report's JSON: a JSON Schema made from the records, and the same as tables for people."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
import typing
from typing import Any

from writing import escaped, table

from flatout.records.message import Message
from flatout.records.report import SCHEMA, RunReport

_PAGE = "reference/report-json.md"
_SCHEMA = "reference/report.schema.json"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
# What `to_json` adds to the record itself.
_NEXT = {"type": "string", "description": "The command to go on with."}
_FACTS = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {"id": {"type": "string"}, "args": {"type": "object"}},
        "required": ["id", "args"],
    },
    "description": "What the sentences of this report consist of: the message behind each, by the JSON pointer of the "
    "sentence. Absent where there are none.",
}
_FIELD = re.compile(r"    (\w+): ")


def pages() -> dict[str, str]:
    return {_PAGE: _page(), _SCHEMA: json.dumps(schema(), indent=1) + "\n"}


def schema() -> dict[str, Any]:
    """Of `flatout run --json` and `flatout diagnose --json`; keys may be added, so unknown ones are allowed."""
    definitions: dict[str, Any] = {}
    whole = _record(RunReport, definitions)
    whole["properties"] |= {"schema": {"const": SCHEMA}, "next": _NEXT, "facts": _FACTS}
    whole["required"] = [*whole["required"], "next"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "flatout report",
        **whole,
        "$defs": dict(sorted(definitions.items())),
    }


def _record(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints, words = typing.get_type_hints(kind), _comments(kind)
    properties = {}
    for field in dataclasses.fields(kind):
        said = {"description": words[field.name]} if field.name in words else {}
        properties[field.name] = {**_value(hints[field.name], definitions), **said}
    return {
        "type": "object",
        "description": _about(kind),
        "properties": properties,
        "required": list(properties),
    }


def _value(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is types.NoneType:
        return {"type": "null"}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hint is Message:  # written in English
        return {"type": "string"}
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if origin in (types.UnionType, typing.Union):
        values = [_value(one, definitions) for one in inner]
        different = [value for at, value in enumerate(values) if value not in values[:at]]
        return different[0] if len(different) == 1 else {"anyOf": different}
    if origin is tuple:
        return {"type": "array", "items": _value(inner[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _value(inner[1], definitions)}
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # a record within itself would otherwise never end
            definitions[hint.__name__] = _record(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    assert hint is object, hint
    return {}


def _about(kind: type) -> str:
    """The docstring; one that dataclass made up from the signature says nothing."""
    text = inspect.getdoc(kind) or ""
    return "" if text.startswith(f"{kind.__name__}(") else text


def _comments(kind: type) -> dict[str, str]:
    """What is written above a field, in the source."""
    found: dict[str, str] = {}
    words: list[str] = []
    for line in inspect.getsource(kind).splitlines():
        field = _FIELD.match(line)
        if line.startswith("    # "):
            words.append(line.removeprefix("    # "))
        elif field and words:
            found[field.group(1)] = " ".join(words)
        if not line.startswith("    # "):
            words = []
    return found


def _page() -> str:
    whole = schema()
    parts = [
        "# The report as JSON",
        "`flatout run --json FILE`, `flatout diagnose RUN --json FILE` and `flatout demo --json FILE` write it. "
        "`null` always means not measured; a zero is a measured zero. Keys may be added within schema "
        f"{SCHEMA}, none is taken away or given another meaning. For programs: "
        "[report.schema.json](report.schema.json).",
        "## The whole",
        _fields(whole, whole["$defs"]),
    ]
    for name, record in whole["$defs"].items():
        parts += [f"## {name}", escaped(record["description"]), _fields(record, whole["$defs"])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _fields(record: dict[str, Any], definitions: dict[str, Any]) -> str:
    rows = [
        (f"`{name}`", _words(value), escaped(value.get("description") or _said_of(value, definitions)))
        for name, value in record["properties"].items()
    ]
    return table(("key", "value", ""), rows)


def _said_of(value: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Where a field has no words of its own: the first line about the record that it holds."""
    for inner in (value, value.get("items", {}), *value.get("anyOf", ())):
        if "$ref" in inner:
            said: str = definitions[inner["$ref"].rpartition("/")[2]]["description"]
            return said.partition("\n")[0]
    return ""


def _words(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        return " or ".join(_words(one) for one in value["anyOf"])
    if "enum" in value:
        return ", ".join(f'`"{one}"`' for one in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if value.get("type") == "array":
        return f"list of {_words(value['items'])}"
    if value.get("type") == "object":
        return f"object of {_words(value['additionalProperties'])}" if "additionalProperties" in value else "object"
    return str(value.get("type", "anything"))
