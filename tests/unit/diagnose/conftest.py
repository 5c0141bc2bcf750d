from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.making import Making


@pytest.fixture
def making(tmp_path: Path) -> Making:
    return Making(tmp_path)
