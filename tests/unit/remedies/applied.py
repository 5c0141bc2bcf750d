"""Puts one remedy in force in the test's own process, and takes it back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from flatout.attach import imports
from flatout.attach.patching import Patches
from flatout.records.message import Message
from flatout.remedies.catalogue import known
from flatout.remedies.site import Site
from flatout.words import english


def site_for(name: str, value: Any) -> Site:
    """Nothing is applied there yet."""
    return Site(torch, Patches(f"__flatout_test_{name}__"), imports.after_import, lambda site: None, {name: value})


@contextmanager
def applied(name: str, value: Any = True) -> Iterator[Site]:
    site = site_for(name, value)
    known()[name].apply(site, value)
    try:
        yield site
    finally:
        site.revert()


def reason(site: Site) -> str:
    """Why it is not in force, in English; empty where it is."""
    return "" if site.why is None else english(site.why)


def live_in_english(site: Site) -> dict[str, Any]:
    """What it told of itself."""
    return {name: _in_english(value) for name, value in site.live.items()}


def _in_english(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_in_english(item) for item in value]
    return english(value) if isinstance(value, Message) else value
