"""A training on a CPU with fewer threads than there are processors."""

from __future__ import annotations

import os

import pytest

from tests.integration.watching import Watch, line_of

# Nobody else may have the other processor, or nothing is to be said.
pytestmark = [
    pytest.mark.timing,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one processor there is no other to use"),
]


@pytest.mark.parametrize(("width", "is_found"), [(512, True), (16, False)])
def test_idle_processors_are_told_where_operations_are_large(watch: Watch, width: int, is_found: bool) -> None:
    seen = watch("one_thread.py", str(width))

    assert seen.returncode == 0, seen.stderr
    found = [finding for finding in seen.json["findings"] if finding["code"] == "CO524"]
    assert bool(found) == is_found, seen.json["findings"]
    if found:
        assert found[0]["location"]["line"] == line_of("one_thread.py", "# one")
        assert found[0]["evidence"]["threads"] == 1
