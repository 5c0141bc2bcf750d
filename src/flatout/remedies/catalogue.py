"""Finds the remedies: every module of this package that has an ID."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from .answers import Answer
from .values import Value

if TYPE_CHECKING:
    from ..records.report import RunReport
    from .site import Site

SAFETIES = ("lossless", "numeric", "training")


@dataclass(frozen=True, slots=True)
class Remedy:
    id: str
    title: str
    safety: str
    text: str
    value: Value
    conflicts: tuple[str, ...]
    applies: Callable[[RunReport], Answer]
    apply: Callable[[Site, Any], None]


@cache
def remedies() -> tuple[Remedy, ...]:
    """All of them, in the order of their application: by safety, then by id."""
    found = []
    package = importlib.import_module(__package__)
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{__package__}.{info.name}")
        if not hasattr(module, "ID"):
            continue  # something its neighbours share
        found.append(
            Remedy(
                id=module.ID,
                title=module.TITLE,
                safety=module.SAFETY,
                text=module.__doc__ or "",
                value=module.VALUE,
                conflicts=tuple(getattr(module, "CONFLICTS", ())),
                applies=module.applies,
                apply=module.apply,
            )
        )
    return tuple(sorted(found, key=lambda remedy: (SAFETIES.index(remedy.safety), remedy.id)))


def known() -> dict[str, Remedy]:
    return {remedy.id: remedy for remedy in remedies()}
