"""Work of the script that takes longer from step to step."""

from __future__ import annotations

import pytest

from tests.integration.watching import Watch, line_of

pytestmark = pytest.mark.durations


def test_work_over_everything_so_far_is_found(watch: Watch) -> None:
    seen = watch("grows.py", "epoch")

    assert seen.returncode == 0, seen.stderr
    first = seen.json["findings"][0]
    assert first["code"] == "HO415", [finding["code"] for finding in seen.json["findings"]]
    assert first["evidence"]["since"] == "epoch" and first["evidence"]["function"] == "summarise"
    assert abs(first["location"]["line"] - line_of("grows.py", "# grows")) <= 2


def test_work_that_takes_as_long_in_each_step_does_not_grow(watch: Watch) -> None:
    seen = watch("grows.py", "same")

    assert seen.returncode == 0, seen.stderr
    codes = [finding["code"] for finding in seen.json["findings"]]
    # Nothing reads what it makes.
    assert codes == ["CA606"], codes
