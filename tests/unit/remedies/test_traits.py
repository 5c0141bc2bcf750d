"""What a remedy is like stands in its own file: a new one needs no other file to be touched."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import flatout.remedies
from flatout.experiment.judge import counted_by, only_feeds
from flatout.experiment.plan import Wishes, group_remedies, helps_launching, make_plan, switchable
from flatout.experiment.sizing import settling, waits_an_epoch, warm_up_steps
from flatout.launch.profile import read_profile
from flatout.remedies.catalogue import known, remedies
from tests.cases.evidence import run

SRC = Path(__file__).resolve().parents[3] / "src" / "flatout"
# Where remedies are defined, and where findings and words name them.
THEIRS = ("remedies", "problems", "words", "workloads")
_REMEDY = """
'''A remedy that nobody knows of.

It does nothing.
'''

from ..answers import yes
from ..traits import Bottleneck, Traits, WarmUp
from ..values import Flag

ID = "novel.thing"
TITLE = "A thing that is new"
SAFETY = "lossless"
TRAITS = Traits(
    Bottleneck.LAUNCHING, is_switchable=True, warm_up=WarmUp(17), begins_with_second_epoch=True
)
VALUE = Flag()


def applies(report):
    return yes(True, "it is new")


def apply(site, value):
    pass
"""


@pytest.fixture
def novel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    family = tmp_path / "novel"
    family.mkdir()
    (family / "__init__.py").write_text("")
    (family / "thing.py").write_text(_REMEDY)
    monkeypatch.setattr(flatout.remedies, "__path__", [*flatout.remedies.__path__, str(tmp_path)])
    remedies.cache_clear()
    yield "novel.thing"
    remedies.cache_clear()


def test_a_new_file_is_all_that_a_new_remedy_needs(novel: str) -> None:
    plan = make_plan(run().report, Wishes(only=(novel,)), (), {})
    (planned,) = plan.remedies

    assert (planned.id, planned.value, planned.safety) == (novel, True, "lossless")
    assert read_profile(None, {novel: True}).values == {novel: True}
    assert switchable([planned]) == [planned] and helps_launching(planned)
    assert not only_feeds([planned]) and counted_by([novel]) == "blocks"
    assert warm_up_steps([novel]) == 17 and waits_an_epoch([novel]) and not settling([(novel, True)], 0.1)
    assert group_remedies([planned]) == [[planned]]


def test_nobody_else_names_a_remedy() -> None:
    names = {remedy.id for remedy in known().values()} | {f"{remedy.id.split('.')[0]}." for remedy in known().values()}
    found = [
        f"{file.relative_to(SRC)}:{node.lineno}: {node.value!r}"
        for file in sorted(SRC.rglob("*.py"))
        if file.relative_to(SRC).parts[0] not in THEIRS
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    ]

    assert not found


def test_those_that_go_together_say_so_of_each_other() -> None:
    every = known()

    assert all(id in every[other].traits.pairs_with for id in every for other in every[id].traits.pairs_with)
