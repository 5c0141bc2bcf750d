"""One change spares all calls that repeat the same first one."""

from __future__ import annotations

from dataclasses import replace

from flatout.problems.compute.repeated_forward import in_run
from flatout.records.evidence import NeedlessCall
from flatout.records.report import Location
from tests.cases.evidence import HERE, run

_FIRST = Location("train.py", 8)
_CALL = NeedlessCall("repeat", "Net", HERE, "accuracy", _FIRST, 1.0, 10.0, 0.0)


def test_functions_that_repeat_the_same_call_are_one_finding() -> None:
    calls = [replace(_CALL, function=name) for name in ("accuracy", "confidence", "entropy")]

    (found,) = in_run(run(needless_calls=tuple(calls)))

    assert found.evidence["calls_per_step"] == 3 and found.evidence["forward_ms_per_step"] == 30


def test_other_modules_in_another_function_are_another() -> None:
    other = replace(_CALL, module="Teacher", function="distil", first_location=Location("train.py", 20))

    assert len(list(in_run(run(needless_calls=(_CALL, other))))) == 2
    assert len(list(in_run(run(needless_calls=(_CALL, replace(other, function="accuracy")))))) == 1
