"""A compiled model on a GPU: compiling waits for the device, copies to it, takes memory, and none of that is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.watching import Watch

pytestmark = pytest.mark.gpu


def test_what_compiling_did_is_no_part_of_the_steady_step(watch: Watch, tmp_path: Path) -> None:
    seen = watch("settles.py", "inductor", "cuda", TORCHINDUCTOR_CACHE_DIR=str(tmp_path))

    assert seen.returncode == 0, seen.stderr
    assert "compile" in seen.json["warmup"]["causes"]
    assert not {"SY302", "ME701", "HO401"} & {finding["code"] for finding in seen.json["findings"]}
