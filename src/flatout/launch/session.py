"""`with flatout.session(...)`: a profile's remedies in force within a block of the user's own code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from flatout.attach import imports
from flatout.attach.patching import Patches
from flatout.launch.profile import read_profile
from flatout.records.message import Message, restore
from flatout.remedies.applying import Applied
from flatout.words import english


class AppliedRemedies:
    """What is in force: `states` has a line for each remedy, as the record of a run has, its facts in English."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, object]] = {}

    def note(self, value: dict[str, object]) -> None:
        self._last[str(value["id"])] = dict(value)

    @property
    def states(self) -> tuple[dict[str, object], ...]:
        return tuple({name: _in_english(item) for name, item in value.items()} for value in self._last.values())


@contextmanager
def session(
    profile_file: str | PathLike[str] | None = None, remedies: Mapping[str, object] | None = None
) -> Iterator[AppliedRemedies]:
    """Apply a profile (`flatout.toml`), or remedies by id, until the block ends; then everything is put back.

    with flatout.session(remedies={"precision.tf32": True}) as applied: train()
    """
    wanted = read_profile(Path(profile_file) if profile_file is not None else None, remedies or {}).values
    told = AppliedRemedies()
    applied = Applied(torch, wanted, Patches, imports.after_import, told.note)
    applied.apply()
    applied.tell()
    try:
        yield told
    finally:
        applied.revert()


def _in_english(value: Any) -> Any:
    found = restore(value)
    if isinstance(found, Message):
        return english(found)
    return {name: _in_english(item) for name, item in found.items()} if isinstance(found, dict) else found
