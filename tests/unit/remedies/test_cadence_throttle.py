"""A named function is called every k-th step only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from flatout.records.message import message, verbatim
from flatout.records.report import Finding, Location, RelatedLine, RunReport
from flatout.remedies.catalogue import known
from flatout.words import english
from tests.cases.evidence import run
from tests.unit.remedies.applied import applied, reason


@pytest.fixture
def viewer() -> Iterator[ModuleType]:
    module = ModuleType("viewer_of_test")
    source = """
calls = []
def render(x):
    calls.append(x)
    return x
class View:
    def show(self, x):
        calls.append((id(self), x))
    @staticmethod
    def still(): ...
def frames():
    yield 1
limit = 3
"""
    exec(source, vars(module))
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def test_a_function_is_called_once_in_so_many_steps(viewer: ModuleType) -> None:
    plain = viewer.render

    with applied("cadence.throttle", "viewer_of_test:render=5") as site:
        results = []
        for step in range(1, 13):
            site.stepped(step)
            results.append(viewer.render(step))

    assert viewer.calls == [1, 6, 11]
    assert results == [1] * 5 + [6] * 5 + [11] * 2
    assert viewer.render is plain
    assert site.live == {"throttled": "viewer_of_test:render"}


def test_all_calls_of_a_step_count_as_one(viewer: ModuleType) -> None:
    with applied("cadence.throttle", "viewer_of_test:render=5") as site:
        for step in range(1, 8):
            site.stepped(step)
            viewer.render((step, "left"))
            viewer.render((step, "right"))

    assert viewer.calls == [(1, "left"), (1, "right"), (6, "left"), (6, "right")]


def test_each_object_has_its_own_turn(viewer: ModuleType) -> None:
    one, other = viewer.View(), viewer.View()

    with applied("cadence.throttle", "viewer_of_test:View.show=3") as site:
        for step in range(1, 5):
            site.stepped(step)
            one.show(step)
            if step > 1:
                other.show(step)

    assert viewer.calls == [(id(one), 1), (id(other), 2), (id(one), 4)]


def test_a_module_may_come_later(viewer: ModuleType) -> None:
    with applied("cadence.throttle", "wave:open=5") as site:
        import wave

        assert hasattr(wave.open, "__wrapped__")

    assert not hasattr(wave.open, "__wrapped__")
    assert site.live == {"throttled": "wave:open"}


@pytest.mark.parametrize("name", ["missing", "limit", "View", "View.missing", "View.still", "Nobody.show"])
def test_what_is_no_function_is_told(viewer: ModuleType, name: str) -> None:
    with applied("cadence.throttle", f"viewer_of_test:{name}=5") as site:
        assert name in reason(site)
        assert not site.in_force


@pytest.mark.parametrize("written", ["render=5", "viewer:render", "viewer:render=0", "viewer:render=5,", 5])
def test_what_is_no_name_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="module:function=50"):
        known()["cadence.throttle"].value.read(written)


def test_the_first_call_of_an_object_is_made_whatever_number_it_has(viewer: ModuleType) -> None:
    with applied("cadence.throttle", "viewer_of_test:View.show=50") as site:
        for step in range(1, 5):
            site.stepped(step)
            # Made where the one before has been.
            viewer.View().show(step)

    assert [shown for _, shown in viewer.calls] == [1, 2, 3, 4]


def test_what_can_be_used_only_once_is_left_alone(viewer: ModuleType) -> None:
    with applied("cadence.throttle", "viewer_of_test:frames=50") as site:
        for step in range(1, 4):
            site.stepped(step)
            assert list(viewer.frames()) == [1]

    assert "only once" in reason(site)


# Which function a training loop could call less often, read from a finding and the source.


_VIEWER = """
class View:
    def serve(self):
        self.wait()

    @staticmethod
    def show():
        pass

    def wait(self):
        self.connection.recv(4)
"""


def found(folder: Path, line: str, called: str = "View.serve") -> RunReport:
    script, viewer = folder / "train.py", folder / "view.py"
    script.write_text(f"from view import View\nlive = View()\nwhile True:\n    {line}\n")
    viewer.write_text(_VIEWER)
    hops = (
        RelatedLine(Location(str(script), 4), message("related.calls", function=called)),
        RelatedLine(Location(str(viewer), 4), message("related.calls", function="View.wait")),
    )
    here = Location(str(viewer), 11)
    finding = Finding(
        "SY305", "sync", "x", "medium", here, {}, verbatim("it waits"), "cadence.throttle", None, None, related=hops
    )
    report = run().report
    return replace(report, findings=(finding,), run=replace(report.run, argv=("python", str(script))))


def test_a_call_that_returns_nothing_of_use_is_proposed(tmp_path: Path) -> None:
    answer = known()["cadence.throttle"].applies(found(tmp_path, "live.serve()"))

    assert answer.value == "view:View.serve=50"


@pytest.mark.parametrize(
    ("line", "called"),
    [
        ("picture = live.serve()", "View.serve"),
        ("if live.serve(): break", "View.serve"),
        ("live.show()", "View.show"),
        ("live.gone()", "View.gone"),
    ],
)
def test_others_are_for_the_user_to_name(tmp_path: Path, line: str, called: str) -> None:
    answer = known()["cadence.throttle"].applies(found(tmp_path, line, called))

    assert not answer.is_yes
    assert "only you" in english(answer.why)


def test_source_that_is_gone_proposes_nothing(tmp_path: Path) -> None:
    report = found(tmp_path, "live.serve()")
    (tmp_path / "view.py").unlink()

    assert not known()["cadence.throttle"].applies(report).is_yes
