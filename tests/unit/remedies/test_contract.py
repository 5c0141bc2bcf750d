"""What every remedy keeps to: known, told, and undone without a trace."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import flatout.remedies
from flatout.app.explain import run_explain
from flatout.attach import imports
from flatout.attach.patching import Patches
from flatout.experiment.judge import counted_by, only_feeds
from flatout.experiment.plan import Wishes, group_remedies, helps_launching, make_plan, switchable
from flatout.experiment.sizing import settling, waits_an_epoch, warm_up_steps
from flatout.launch.profile import read_profile
from flatout.problems.catalogue import Problem, problems, problems_of_remedy
from flatout.records.message import verbatim
from flatout.records.report import Finding, RunReport
from flatout.remedies.catalogue import SAFETIES, Remedy, known, remedies
from flatout.remedies.site import Refused, Site
from tests.cases.evidence import on_gpu, run

# Whose attributes remedies replace.
_OWNERS = (
    torch.Tensor, torch.nn.Module, torch.optim.Optimizer, torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD,
    torch.utils.data.DataLoader, torch.cuda, torch.autograd, torch.nn.utils, torch, torch.utils.data.dataloader,
)  # fmt: skip


def _value(remedy: Remedy) -> Any:
    for written in (True, "4", "pkg.module:function=50", "json:dumps=50", "json:dumps"):
        try:
            value = remedy.value.read(written)
        except ValueError:
            continue
        if value is not False:
            return value
    raise AssertionError(f"{remedy.id}: no value to try it with")


def _attributes() -> dict[tuple[int, str], Any]:
    return {(n, name): value for n, owner in enumerate(_OWNERS) for name, value in vars(owner).items()}


@pytest.mark.parametrize("remedy", remedies(), ids=lambda remedy: remedy.id)
def test_it_is_described(remedy: Remedy) -> None:
    family, _, name = remedy.id.partition(".")

    assert family.isidentifier() and name.isidentifier()
    assert remedy.safety in SAFETIES
    assert remedy.title and not remedy.title.endswith(".") and len(remedy.title) <= 72
    assert len(remedy.text.strip().splitlines()) >= 3
    assert remedy.value.words


@pytest.mark.parametrize("remedy", remedies(), ids=lambda remedy: remedy.id)
def test_what_it_changes_is_put_back(remedy: Remedy) -> None:
    before, settings = _attributes(), _settings()
    value = _value(remedy)
    told: list[Site] = []
    site = Site(torch, Patches("__flatout_test__"), imports.after_import, told.append, {remedy.id: value})

    try:
        remedy.apply(site, value)
    except Refused as refused:
        assert str(refused)
    site.revert()

    changed = [key for key, value in _attributes().items() if before.get(key, value) is not value]
    assert not changed
    assert _attributes().keys() == before.keys()
    assert _settings() == settings


def _settings() -> tuple[object, ...]:
    cudnn = torch.backends.cudnn
    return (
        torch.get_float32_matmul_precision(), cudnn.benchmark, cudnn.allow_tf32, torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(), torch.is_anomaly_enabled(), sys.getswitchinterval(),
    )  # fmt: skip


def test_no_two_are_called_the_same() -> None:
    names = [remedy.id for remedy in remedies()]

    assert len(names) == len(set(names))
    assert all(other in names for remedy in remedies() for other in remedy.conflicts)


def test_what_a_problem_promises_exists() -> None:
    names = {remedy.id for remedy in remedies()}

    missing = {problem.remedy for problem in problems() if problem.remedy} - names

    assert missing <= _NOT_YET, "take it out of _NOT_YET once it is there"
    assert not _NOT_YET & names


@pytest.mark.parametrize("remedy", remedies(), ids=lambda remedy: remedy.id)
def test_a_problem_names_it(remedy: Remedy) -> None:
    """By `flatout explain CODE` a reader comes upon it, and by `flatout explain ID` upon the problem."""
    answered = problems_of_remedy(remedy.id)

    assert answered
    assert run_explain(remedy.id).endswith(f" Answers: {', '.join(problem.code for problem in answered)}")


@pytest.mark.parametrize("remedy", remedies(), ids=lambda remedy: remedy.id)
def test_a_problem_that_calls_for_it_names_it(remedy: Remedy) -> None:
    names = {problem.code for problem in problems_of_remedy(remedy.id)}

    # A run with only this finding, of a kind that leaves nothing else to ask for.
    calling = {problem.code for problem in problems() if remedy.applies(_with_finding(problem)).is_yes}

    assert calling <= names


def _with_finding(problem: Problem) -> RunReport:
    finding = Finding(
        problem.code, problem.family, problem.title, "high", None, {}, verbatim(""), problem.remedy, verbatim(""), None
    )
    return replace(run(gpu=on_gpu()).report, findings=(finding,))


# Remedies that findings name and that are still to come.
_NOT_YET: set[str] = set()


# A remedy says on stderr why it is not used, in a process where flatout is not installed.


FLATOUT = Path(__file__).resolve().parents[3] / "src" / "flatout"
SCRIPT = """
import sys
from types import ModuleType

sys.modules["flatout"] = None  # importing it fails
package = ModuleType("_flatout")
package.__path__ = [sys.argv[1]]
sys.modules["_flatout"] = package
from _flatout.records.message import message
from _flatout.remedies.site import Refused

print(Refused(message("precision.no_autocast", device="mps")))
"""


def test_reasons_are_said_without_flatout_installed() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(FLATOUT)], capture_output=True, text=True, timeout=200)

    assert done.stdout == "there is no autocast for mps\n", done.stderr


# What a remedy is like stands in its own file: a new one needs no other file to be touched.


SRC = Path(__file__).resolve().parents[3] / "src" / "flatout"
# Where remedies are defined, and where findings, the gains predicted for them, and words name them.
THEIRS = ("remedies", "problems", "model", "words", "workloads")
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
