"""Finds the remedies: every module of the family folders that has an ID."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from .answers import Answer
from .traits import Traits
from .values import Flag, Value

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
    # Codes of findings that it does something about although they name another remedy.
    answers: tuple[str, ...]
    # What it takes away of the time that a finding is about, at least and likely; None: what is promised there.
    part: tuple[float, float] | None
    traits: Traits
    applies: Callable[[RunReport], Answer]
    apply: Callable[[Site, Any], None]


@cache
def remedies() -> tuple[Remedy, ...]:
    """All of them, in the order of their application: by safety, then by id."""
    found = []
    for name in _modules(__package__):
        module = importlib.import_module(name)
        if not hasattr(module, "ID"):
            continue  # something its neighbours share
        found.append(
            Remedy(
                id=module.ID,
                title=module.TITLE,
                safety=module.SAFETY,
                text=module.__doc__ or "",
                value=getattr(module, "VALUE", Flag()),
                conflicts=tuple(getattr(module, "CONFLICTS", ())),
                answers=tuple(getattr(module, "ANSWERS", ())),
                part=getattr(module, "PART", None),
                traits=module.TRAITS,
                applies=module.applies,
                apply=module.apply,
            )
        )
    return tuple(sorted(found, key=lambda remedy: (SAFETIES.index(remedy.safety), remedy.id)))


def known() -> dict[str, Remedy]:
    return {remedy.id: remedy for remedy in remedies()}


def traits_of(id: str) -> Traits:
    return known()[id].traits


def _modules(package: str) -> Iterator[str]:
    """Of the family folders; what lies beside them is the mechanism."""
    families = pkgutil.iter_modules(importlib.import_module(package).__path__)
    for family in (f"{package}.{info.name}" for info in families if info.ispkg):
        for info in pkgutil.iter_modules(importlib.import_module(family).__path__):
            yield f"{family}.{info.name}"
