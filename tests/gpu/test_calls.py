"""Calls of modules in vain, on a GPU: results cannot be read there, so random numbers and the module's state decide."""

from __future__ import annotations

import pytest

from tests.integration.test_calls import EXPECTED, OFTEN, say_by_training
from tests.integration.watching import Run, Watch

pytestmark = pytest.mark.gpu


def test_calls_in_vain_are_told_from_others(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("calls.py")
    seen = watch("calls.py", FLATOUT_SETTINGS=OFTEN)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    assert "stopped watching" not in seen.stderr
    # What a function of the script returns cannot be compared there.
    assert say_by_training(seen) == {name: kinds for name, kinds in EXPECTED.items() if name != "vain_function"}
