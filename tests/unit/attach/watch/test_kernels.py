"""Kernels and who launched them: arithmetic on what a window recorded."""

from __future__ import annotations

import importlib
import os

import pytest

from flatout.attach.tracer import clock

kernels = importlib.import_module("flatout.attach.watch.kernels")


def _kernel(name: str, launched_s: float, begun_ms: float, ms: float):  # type: ignore[no-untyped-def]
    return kernels.Kernel(name, launched_s, round(begun_ms * 1e6), round((begun_ms + ms) * 1e6))


def test_overlapping_kernels_keep_the_device_busy_once() -> None:
    ran = [_kernel("a", 0.0, 0, 4), _kernel("b", 0.1, 2, 4), _kernel("c", 0.2, 3, 1), _kernel("d", 0.3, 10, 1)]

    assert kernels.busy_s(ran) == pytest.approx(0.007)
    assert kernels.busy_s([]) == 0.0


def test_a_kernel_belongs_to_what_ran_when_it_was_launched() -> None:
    track = [(1.0, "forward", "line 3"), (2.0, "forward", "line 4"), (3.0, "optimizer", None)]
    ran = [_kernel("a", moment, 0, 1) for moment in (0.5, 1.0, 1.9, 2.5, 9.0)]

    assert kernels.find_launchers(ran, track) == [
        ("", None),
        ("forward", "line 3"),
        ("forward", "line 3"),
        ("forward", "line 4"),
        ("optimizer", None),
    ]


def test_alike_kernels_of_one_line_are_one_row_the_longest_first() -> None:
    ran = [_kernel("gemm", 0.0, 0, 1), _kernel("copy", 0.0, 1, 5), _kernel("gemm", 0.0, 6, 2)]
    here = ["forward", ["train.py", 3, "main"]]

    told = kernels.describe_kernels(ran, [here, here, here])

    assert told["kernels"] == 3
    assert told["busy_ms"] == pytest.approx(8.0)
    assert told["names"] == ["copy", "gemm"]
    assert told["rows"] == [[0, here, 1, 5.0], [1, here, 2, 3.0]]


@pytest.mark.parametrize("before", [None, "0"])
def test_the_variable_that_takes_cupti_down_stays_until_it_is_gone(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    if before is not None:
        monkeypatch.setenv("TEARDOWN_CUPTI", before)
    teardown = kernels.Teardown()

    teardown.hold()
    teardown.end(clock())
    assert os.environ["TEARDOWN_CUPTI"] == "1", "a window is open"
    teardown.let_go()
    teardown.end(clock())
    assert os.environ["TEARDOWN_CUPTI"] == "1", "torch still reads it"
    # Another window opens meanwhile: what there was before it is not what this one has set.
    teardown.hold()
    teardown.let_go()
    teardown.end(clock() + 60.0)

    assert os.environ.get("TEARDOWN_CUPTI") == before
    teardown.end()
    assert os.environ.get("TEARDOWN_CUPTI") == before
