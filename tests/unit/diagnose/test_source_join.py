"""The source's part in the picture of a run: where a value is written, what the run cannot tell, and no more."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flatout.diagnose import source_join as merging
from flatout.diagnose.source_join import join_source, own_files
from flatout.records.evidence import Evidence
from flatout.records.message import verbatim
from flatout.records.report import Finding, Gain, LineCost, Location, RemedyState, RunReport
from flatout.store.run import StoredRun
from flatout.words import english
from tests.cases.evidence import loader, on_gpu, run
from tests.unit.making import Making

OPTIONS = 'parser.add_argument("--num-workers", type=int, default=0)\n'
TRAIN = """\
import gc
from options import args
from torch.utils.data import DataLoader

loader = DataLoader(Images(), batch_size=32, num_workers=args.num_workers, pin_memory=True)
model = Net().to("cuda")
for images, labels in loader:
    loss = criterion(model(images.to("cuda", non_blocking=True)), labels)
    loss.backward()
    optimizer.step()
    total += loss.item()
    gc.collect()
"""
LOOP = """\
    maps = torch.zeros(shape)
    for row in range(64):
        for column in range(64):
            maps[row, column] = torch.exp(-row * points[column])
"""
LOADER, ITEM, COLLECT = 5, 11, 12
GAIN = Gain(1.3, 1.5, 1.5, verbatim(""))
MS = {"data": 40.0, "forward": 20.0, "backward": 20.0, "other": 20.0}


class Scene:
    """A project on disk, older than the run that executed it."""

    def __init__(self, folder: Path, argv: tuple[str, ...] = ("train.py",)) -> None:
        self.folder = folder
        self.write("options.py", OPTIONS)
        self.write("train.py", TRAIN)
        making = Making(folder / "runs", argv)
        making.manifest = replace(making.manifest, cwd=str(folder))
        making.process().end()
        self.stored: StoredRun = making.stored()

    def write(self, name: str, text: str, is_old: bool = True) -> None:
        (self.folder / name).write_text(text)
        if is_old:
            os.utime(self.folder / name, (500.0, 500.0))

    def at(self, line: int, file: str = "train.py") -> Location:
        return Location(str(self.folder / file), line)

    def evidence(self, *found: Finding, lines: tuple[tuple[int, float], ...] = ((9, 20.0),), **more: Any) -> Evidence:
        seen = tuple(LineCost(self.at(line), "<module>", "other", ms / 100, ms) for line, ms in lines)
        use = loader(made_at=self.at(LOADER), num_workers=0)
        defaults: dict[str, Any] = {"ms": MS, "loaders": (use,), "all_lines": seen, "findings": found}
        return run(**{**defaults, **more})

    def report(self, evidence: Evidence) -> RunReport:
        return join_source(self.stored, evidence).report


def finding(code: str, location: Location | None, family: str = "input") -> Finding:
    return Finding(
        code, family, "Title", "high", location, {}, verbatim("because"), None, verbatim("num_workers=4"), GAIN
    )


def test_a_finding_learns_where_its_value_is_written(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    report = scene.report(scene.evidence(finding("IN101", scene.at(LOADER))))

    (shown,) = report.findings
    assert shown.location == scene.at(LOADER)
    (related,) = shown.related
    assert related.location == scene.at(1, "options.py")
    assert english(related.words) == "the default of --num-workers is 0"


def test_a_value_from_the_command_line_is_not_blamed_on_the_default(tmp_path: Path) -> None:
    scene = Scene(tmp_path, ("train.py", "--num_workers=0"))

    report = scene.report(scene.evidence(finding("IN101", scene.at(LOADER))))

    assert report.findings[0].related == ()


def test_a_finding_without_a_line_stands_where_the_value_takes_effect(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    report = scene.report(scene.evidence(finding("IN101", None)))

    (shown,) = report.findings
    assert shown.location == scene.at(LOADER)
    (related,) = shown.related
    assert related.location == scene.at(1, "options.py")
    assert english(related.words) == "the default of --num-workers is 0"


def test_a_finding_without_a_line_gets_the_one_in_the_source(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    report = scene.report(scene.evidence(finding("HO404", None, "host")))

    assert report.findings[0].location == scene.at(COLLECT) and len(report.findings) == 1


def test_what_the_run_cannot_tell_is_counted(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    side = scene.report(scene.evidence(finding("IN101", scene.at(LOADER)), line_looks=900.0)).source

    assert side is not None and side.files == 2
    assert [(finding.code, finding.location.line) for finding in side.not_measured] == [("SY301", ITEM)]
    # gc.collect() was met by none of the looks at the loop.
    assert side.free == 1 and side.path == "train.py"


def test_what_costs_much_and_nobody_has_said_is_a_finding_with_its_measured_cost(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    first = finding("IN101", scene.at(LOADER))

    report = scene.report(scene.evidence(first, lines=((COLLECT, 15.0),)))

    assert [finding.code for finding in report.findings] == ["IN101", "HO404"]
    added = report.findings[1]
    assert added.location == scene.at(COLLECT) and added.predicted_gain is None and added.severity == "medium"
    assert added.evidence == {"line_ms_per_step": 15.0, "line_share": 0.15}


@pytest.mark.parametrize("hits", [0, 30])
def test_a_loop_whose_results_are_kept_is_not_said(tmp_path: Path, hits: int) -> None:
    scene = Scene(tmp_path)
    scene.write("train.py", TRAIN + LOOP)
    kept = RemedyState("memo.function", "lossless", "__main__:targets", "applied", live={"hits": hits})

    report = scene.report(scene.evidence(lines=((COLLECT + 4, 15.0),), remedies=(kept,)))

    assert [finding.code for finding in report.findings] == ([] if hits else ["HO402"])


def test_nothing_is_said_twice_of_a_line(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    same = finding("HO401", scene.at(COLLECT), "host")

    report = scene.report(scene.evidence(same, lines=((COLLECT, 15.0),)))

    assert [finding.code for finding in report.findings] == ["HO401"]


def test_the_page_of_a_healthy_run_does_not_grow(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("train.py", TRAIN.replace("    total += loss.item()\n    gc.collect()\n", ""))
    evidence = scene.evidence(gpu=on_gpu(), ms={**MS, "data": 0.1}, loaders=(loader(made_at=scene.at(LOADER)),))

    report = scene.report(evidence)

    assert report.findings == () and report.source is not None and report.source.not_measured == ()


@pytest.mark.parametrize("change", ["gone", "edited", "broken", "failing"])
def test_without_the_source_the_run_speaks_alone(tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    evidence = scene.evidence(finding("IN101", scene.at(LOADER)))
    if change == "gone":
        (tmp_path / "train.py").unlink()
        (tmp_path / "options.py").unlink()
    elif change == "edited":
        scene.write("train.py", TRAIN, is_old=False)
    elif change == "broken":
        scene.write("train.py", "def f(:\n")
    else:
        monkeypatch.setattr(merging, "check_project", lambda *_: 1 / 0)

    report = scene.report(evidence)

    assert report.findings == evidence.report.findings
    assert report.source is None or report.source.not_measured == ()


def test_only_a_few_of_the_users_own_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    scene.write("unused.py", "x = 1\n")
    (tmp_path / "site-packages").mkdir()
    scene.write("site-packages/library.py", "x = 1\n")
    evidence = scene.evidence()
    library = LineCost(scene.at(1, "site-packages/library.py"), "f", "other", 0.5, 50.0)
    evidence = replace(evidence, all_lines=(*evidence.all_lines, library))

    assert [path.name for path in own_files(scene.stored, evidence)] == ["train.py", "options.py"]
    monkeypatch.setattr(merging, "_MOST_FILES", 1)
    assert [path.name for path in own_files(scene.stored, evidence)] == ["train.py"]
    monkeypatch.setattr(merging, "_MOST_BYTES", 10)
    assert own_files(scene.stored, evidence) == []


def test_what_takes_too_long_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, hold = Scene(tmp_path), threading.Event()
    evidence = scene.evidence(finding("IN101", scene.at(LOADER)))
    monkeypatch.setattr(merging, "check_project", lambda *_: hold.wait(30.0))

    assert join_source(scene.stored, evidence, limit_s=0.05) is evidence
    hold.set()

    monkeypatch.undo()
    assert join_source(scene.stored, evidence, limit_s=30.0).report.source is not None


def test_a_run_without_steps_is_left_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    evidence = scene.evidence()
    evidence = replace(evidence, report=replace(evidence.report, phases={}))

    assert join_source(scene.stored, evidence) is evidence


def test_the_script_is_read_even_if_no_line_of_it_was_seen(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    files = own_files(scene.stored, scene.evidence(lines=(), loaders=()))

    assert [path.name for path in files] == ["train.py", "options.py"]
