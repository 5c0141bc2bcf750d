"""Brings the remedies of a profile into this process. They are loaded by file location, as this package is.

Remedies wrap what is watched already, so that a run under a profile is measured like any other.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

from . import imports, session
from .patching import Patches, hide_from_compiler

# Stands in for flatout itself, which need not be installed where the script runs.
_PACKAGE = "_flatout"
_FLATOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_applied: Any = None


def make_importable() -> None:
    """`_flatout.remedies` and `_flatout.feed` can be imported from here on, also to unpickle what is of them."""
    if _PACKAGE not in sys.modules:
        package = ModuleType(_PACKAGE, "flatout's remedies and feed, by file location")
        package.__path__ = [_FLATOUT]
        sys.modules[_PACKAGE] = package


def _import_applying() -> Any:
    make_importable()
    return importlib.import_module(f"{_PACKAGE}.remedies.applying")


def begin(wanted: str) -> None:
    """Apply the remedies of this JSON text, `{id: value}`; whatever fails, the script runs on without them."""
    global _applied
    torch = sys.modules.get("torch")
    if _applied is not None or torch is None:
        return
    try:
        applying = _import_applying()
        _applied = applying.Applied(torch, json.loads(wanted), Patches, imports.after_import, _note)
        _applied.apply()
        session.tell_of_settling(are_settling)
        hide_from_compiler(torch, _PACKAGE)
    except Exception as error:
        sys.stderr.write(f"flatout: no remedy is in force ({type(error).__name__}: {error})\n")


def make_sites(wanted: Mapping[str, Any]) -> Any:
    """More remedies, neither in force nor recorded yet: for arms that take turns."""
    return _import_applying().Sites(sys.modules["torch"], wanted, Patches, imports.after_import)


def suspend(names: Collection[str]) -> None:
    """Suspend these of the remedies in force until they are no longer named."""
    if _applied is not None:
        _applied.rest(names)


def are_settling() -> bool:
    """Does one of them still observe, compile or time?"""
    return _applied is not None and _applied.is_settling


def finish() -> None:
    """The trial is over: what the remedies learnt is kept for the next."""
    if _applied is not None:
        _applied.leave()


def end() -> None:
    """Undo them all."""
    global _applied
    if _applied is not None:
        _applied.revert()
        _applied = None


def _note(value: dict[str, object]) -> None:
    session.text("remedy", value)
