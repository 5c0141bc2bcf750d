"""What every remedy keeps to: known, told, and undone without a trace."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from flatout.app.explain import run_explain
from flatout.attach import imports
from flatout.attach.patching import Patches
from flatout.problems.catalogue import Problem, problems, problems_of_remedy
from flatout.records.message import verbatim
from flatout.records.report import Finding, RunReport
from flatout.remedies.catalogue import SAFETIES, Remedy, remedies
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
