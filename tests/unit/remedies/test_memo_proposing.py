"""Which function is proposed for keeping, and by which name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flatout.records.message import verbatim
from flatout.records.report import Finding, Location, RemedyState, RunReport
from flatout.remedies.catalogue import known
from flatout.remedies.memo.proposal import module_of
from flatout.words import english
from tests.cases.evidence import run

ENGINE = """\
import torch
from project.shapes import widths

def cap(x):
    return torch.clamp(1 - x * x, min=0)

class Engine:
    def step(self, batch):
        for b in range(3):
            self.model(batch)[b] += cap(batch[b])
        self.optimizer.step()

    def targets(self, points):
        out = torch.zeros(points.shape)
        for b in range(points.shape[0]):
            out[b] = cap(points[b] - widths(points))
        return out

    def show(self, points):
        print([cap(point) for point in points])

def noise(x):
    for i in range(3):
        x = x + torch.randn(3)
    return x

for epoch in range(3):
    pass
"""


def found_at(path: Path, line: int, code: str = "HO402", loop: str = "") -> Finding:
    evidence: dict[str, float | int | str] = {"loop_lines": loop} if loop else {}
    return Finding(
        code, "host", "", "high", Location(str(path), line), evidence, verbatim(""), "memo.function", None, None
    )


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "__init__.py").touch()
    path = folder / "engine.py"
    path.write_text(ENGINE)
    return path


def run_with(*findings: Finding) -> RunReport:
    return replace(run().report, findings=findings)


def test_the_function_around_the_line_is_named(engine: Path) -> None:
    applies = known()["memo.function"].applies

    assert applies(run_with(found_at(engine, 16))).value == "project.engine:Engine.targets"
    assert applies(run_with(found_at(engine, 5, "HO408"))).value == "project.engine:cap"
    # The loop may be no function of its own, and call one that takes the time.
    assert applies(run_with(found_at(engine, 5, loop="9-10"))).value == "project.engine:cap"
    both = run_with(found_at(engine, 16), found_at(engine, 5), found_at(engine, 15))
    assert applies(both).value == "project.engine:Engine.targets,project.engine:cap"


def test_what_is_kept_already_stays(engine: Path) -> None:
    state = RemedyState("memo.function", "lossless", "project.engine:Engine.targets", "applied")
    applies = known()["memo.function"].applies

    answer = applies(replace(run_with(found_at(engine, 5), found_at(engine, 16)), remedies=(state,)))

    assert answer.value == "project.engine:Engine.targets,project.engine:cap"
    assert not applies(replace(run_with(), remedies=(state,))).is_yes


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (10, "step returns nothing"),
        (20, "show returns nothing"),
        (24, "noise cannot be kept: it calls torch.randn, which draws random numbers"),
        (28, "line 28 is in no function"),
    ],
)
def test_else_the_reason_is_given(engine: Path, line: int, why: str) -> None:
    answer = known()["memo.function"].applies(run_with(found_at(engine, line)))

    assert not answer.is_yes and why in english(answer.why)


def test_without_a_finding_or_its_source_it_says_no(tmp_path: Path) -> None:
    applies = known()["memo.function"].applies

    assert "no function" in english(applies(run_with()).why)
    assert "cannot be read here" in english(applies(run_with(found_at(tmp_path / "gone.py", 3))).why)


@pytest.mark.parametrize(
    ("file", "argv", "name"),
    [
        ("train.py", ("python", "{}/train.py"), "__main__"),
        ("train.py", ("train.py", "--size", "tiny"), "__main__"),
        ("pack/engine.py", ("{}/train.py",), "pack.engine"),
        ("pack/engine.py", ("torchrun", "--nproc-per-node=2", "train.py"), "pack.engine"),
        ("pack/__init__.py", ("train.py",), "pack"),
        ("pack/engine.py", ("python", "-m", "pack.engine"), "__main__"),
        ("pack/__main__.py", ("python", "-m", "pack"), "__main__"),
        ("plain/deep/engine.py", ("{}/train.py",), "plain.deep.engine"),
        ("plain/deep/engine.py", ("elsewhere/train.py",), "engine"),
    ],
)
def test_a_module_has_the_name_it_has_in_the_process(
    tmp_path: Path, file: str, argv: tuple[str, ...], name: str
) -> None:
    for folder in ("pack", "plain/deep"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pack" / "__init__.py").touch()

    assert module_of(str(tmp_path / file), tuple(word.format(tmp_path) for word in argv)) == name
