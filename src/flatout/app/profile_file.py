"""Writes a profile as `flatout.toml`, with the figures that speak for it as comments."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_HEAD = "[remedies]"


def toml(values: Mapping[str, Any], comments: Sequence[str] = (), notes: Mapping[str, str] | None = None) -> str:
    """`comments` stand above the table, `notes` behind the remedies they are about."""
    lines = [f"# {comment}" for comment in comments]
    lines.append(_HEAD)
    for name, value in values.items():
        note = (notes or {}).get(name)
        lines.append(f"{name} = {_value(value)}" + (f"  # {note}" if note else ""))
    return "\n".join(lines) + "\n"


def write_whole(file: Path, text: str) -> None:
    """All of it or nothing: a half-written profile would be taken for a whole one."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{name} = {_value(one)}" for name, one in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(one) for one in value) + "]"
    # A JSON string is a TOML string as well.
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
