"""Puts one remedy in force in the test's own process, and takes it back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from flatout.attach import imports
from flatout.attach.patching import Patches
from flatout.remedies.catalogue import known
from flatout.remedies.site import Site


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
