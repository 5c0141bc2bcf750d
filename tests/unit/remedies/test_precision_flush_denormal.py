"""Subnormal numbers become zero, unless the script decides that itself."""

from __future__ import annotations

import pytest
import torch

from flatout.remedies.catalogue import known
from flatout.remedies.site import Refused
from tests.unit.remedies.applied import applied, site_for

_ID = "precision.flush_denormal"


def made() -> float:
    return float(torch.tensor([1e-30]) * torch.tensor([1e-10]))


def test_it_is_set_and_put_back() -> None:
    assert made() > 0

    with applied(_ID) as site:
        during = made()
        assert site.in_force

    assert during == 0.0
    assert made() > 0


def test_the_scripts_own_choice_is_kept() -> None:
    with applied(_ID) as site:
        torch.set_flush_denormal(False)
        assert not site.in_force
        assert made() > 0


def test_it_is_refused_where_the_processor_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "set_flush_denormal", lambda wanted: False)

    with pytest.raises(Refused, match="cannot take"):
        known()[_ID].apply(site_for(_ID, True), True)
