"""How much of a sequence that is computed from its start could be spared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.model.edits import Edits, LessHost
from flatout.problems.compute.sequence_from_start import in_run
from flatout.records.evidence import Evidence, GrowingCalls
from tests.cases.compute.sequence_from_start import _CALLS
from tests.cases.evidence import on_gpu, run


def spared_ms(evidence: Evidence) -> list[float]:
    """On the training thread: at worst, likely and at best."""
    (found,) = in_run(evidence)
    assert isinstance(found.edits, Edits)
    cases = (found.edits.worst, found.edits.likely, found.edits.best)
    return [sum(edit.ms for edit in case if isinstance(edit, LessHost)) for case in cases]


def test_a_state_keeps_what_each_call_takes_however_long_its_input_is() -> None:
    # Of 60 ms 6.4 are of the calls as such, in either pass 3.2; of the rest a 16.5th is left.
    fixed_ms, rest_ms = 6.4, 53.6 * 32 / 528

    worst, likely, best = spared_ms(run(growing_calls=(_CALLS,)))

    assert likely == pytest.approx(60 - fixed_ms - rest_ms)
    assert worst == pytest.approx(likely / 2)
    assert best == pytest.approx(60 - fixed_ms / 32 - rest_ms)


def test_one_call_for_all_elements_spares_the_others_too() -> None:
    worst, likely, best = spared_ms(run(growing_calls=(replace(_CALLS, is_known=True),)))

    assert worst < likely == best
    assert worst == pytest.approx(spared_ms(run(growing_calls=(_CALLS,)))[1])


def test_what_a_call_takes_on_the_host_says_nothing_of_a_gpu_that_is_behind() -> None:
    calls = replace(_CALLS, fixed_ms=20 / 32)

    assert spared_ms(run(gpu=on_gpu(), growing_calls=(calls,)))[1] == pytest.approx(60 * (1 - 32 / 528))


def modules_found(*calls: GrowingCalls) -> list[object]:
    return [found.evidence["module"] for found in in_run(run(growing_calls=calls))]


def test_modules_that_one_function_calls_in_turn_are_one_finding() -> None:
    head = replace(_CALLS, module="Linear", forward_ms=5.0, backward_ms=8.0, is_known=True)

    assert modules_found(_CALLS, head) == ["GRU"]
    assert modules_found(_CALLS, replace(head, function="evaluate")) == ["GRU", "Linear"]
