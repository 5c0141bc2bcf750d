"""Another thread of the script beside the one that trains: does it hold the interpreter?"""

from __future__ import annotations

import pytest

from tests.integration.watching import Watch, line_of

pytestmark = pytest.mark.durations


def test_a_thread_that_polls_holds_the_interpreter(watch: Watch) -> None:
    seen = watch("threads.py", "poll", "400")

    assert seen.returncode == 0, seen.stderr
    (found,) = [finding for finding in seen.json["findings"] if finding["code"] == "HO414"]
    assert found["evidence"]["thread"] == "metrics" and found["evidence"]["function"] == "poll"
    assert abs(found["location"]["line"] - line_of("threads.py", "# polls")) <= 2
    assert not seen.json["verdict"]["healthy"] and seen.json["parts"]["waiting"] > 0.05


@pytest.mark.parametrize("kind", ["wait", "compute"])
def test_a_thread_that_waits_or_computes_natively_does_not(watch: Watch, kind: str) -> None:
    seen = watch("threads.py", kind, "600")

    assert seen.returncode == 0, seen.stderr
    assert "HO414" not in [finding["code"] for finding in seen.json["findings"]]
