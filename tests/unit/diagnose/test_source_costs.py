"""Findings in source joined with a run: what costs, what is free, and what the run cannot tell."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flatout.diagnose.source_check import check_project, select_problems
from flatout.diagnose.source_costs import join_costs
from flatout.records.evidence import Evidence
from flatout.records.message import verbatim
from flatout.records.report import (
    CopySite,
    Finding,
    Gain,
    LineCost,
    Location,
    PauseSite,
    Snippet,
    SyncSite,
)
from flatout.records.source import SYNTAX, CheckReport, Measured, Place, SourceFinding
from flatout.source.project.loading import load
from flatout.store.run import StoredRun
from flatout.words import english
from tests.cases.evidence import loader, on_gpu, run, worker_cost
from tests.unit.making import Making

TRAIN = """\
import gc
from torch.utils.data import DataLoader

loader = DataLoader(Images(), batch_size=32, num_workers=4, pin_memory=True)
model = Net().to("cuda")
for images, labels in loader:
    images = images.to("cuda", non_blocking=True)
    loss = criterion(
        model(images), labels
    )
    loss.backward()
    optimizer.step()
    total += loss.item()
    gc.collect()
"""
ITEM, COLLECT, COPY, LOADER = 13, 14, 7, 4
DRY = on_gpu(util_mean=55.0, drained_share=0.6)
MS = {"data": 1.0, "forward": 35.0, "backward": 25.0, "optimizer": 9.0, "sync": 29.0, "other": 1.0}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to check in; its files are older than the run."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write(folder: Path, text: str, name: str = "train.py", is_old: bool = True) -> None:
    (folder / name).write_text(text)
    if is_old:
        os.utime(folder / name, (500.0, 500.0))


def stored(folder: Path) -> StoredRun:
    making = Making(folder.parent / "runs")
    making.process().end()
    return making.stored()


def result(folder: Path, evidence: Evidence, *select: str, recorded: StoredRun | None = None) -> CheckReport:
    project = load([Path(".")])
    return join_costs(
        check_project(project, select_problems(select, ())), project, recorded or stored(folder), evidence
    )


def only(report: CheckReport) -> Measured:
    (finding,) = report.findings
    assert finding.measured is not None
    return finding.measured


def at(folder: Path, line: int, file: str = "train.py") -> Location:
    return Location(str(folder / file), line)


def wait(folder: Path, ms: float | None, line: int = ITEM) -> SyncSite:
    return SyncSite(at(folder, line), "<module>", "item", 1.0, ms)


def took(folder: Path, line: int, ms: float, phase: str = "other", file: str = "train.py") -> LineCost:
    return LineCost(at(folder, line, file), "<module>", phase, ms / 100.0, ms)


# Waits for the device.


def test_a_wait_gets_the_time_of_its_line(project: Path) -> None:
    write(project, TRAIN)

    report = result(project, run(gpu=DRY, ms=MS, syncs=(wait(project, 27.0),)), "SY301")

    assert only(report) == Measured("costs", 27.0, 0.27)
    assert report.findings[0].severity == "high" and report.notices == ()
    assert report.run is not None and report.run.step_ms == 100.0


@pytest.mark.parametrize(
    ("gpu", "ms", "cost"),
    [
        (DRY, 0.02, 0.02),
        # The device is never short of work: the host may wait as long as it likes.
        (on_gpu(drained_share=0.0), 27.0, 0.0),
    ],
)
def test_a_wait_that_delays_nothing_is_free(project: Path, gpu: Any, ms: float, cost: float) -> None:
    write(project, TRAIN)

    report = result(project, run(gpu=gpu, ms=MS, syncs=(wait(project, ms),)), "SY301")

    assert only(report).state == "free" and only(report).ms_per_step == pytest.approx(cost)
    assert report.findings[0].severity == "low"


def test_a_hidden_wait_gets_the_time_of_its_line(project: Path) -> None:
    write(project, TRAIN)
    evidence = run(gpu=DRY, ms=MS, syncs=(wait(project, None),), all_lines=(took(project, ITEM, 8.0),))

    assert only(result(project, evidence, "SY301")) == Measured("costs", 8.0, 0.08)


def test_a_wait_that_was_not_met_is_kept_and_said_so(project: Path) -> None:
    write(project, TRAIN)

    report = result(project, run(gpu=DRY, ms=MS, syncs=(wait(project, 27.0, line=99),)), "SY301")

    assert only(report).state == "not_reached" and report.findings[0].severity == "medium"


def test_a_run_without_a_gpu_tells_nothing_of_waits_and_copies(project: Path) -> None:
    write(project, TRAIN.replace(", non_blocking=True", "").replace(", pin_memory=True", ""))

    report = result(project, run(ms=MS, syncs=(wait(project, 0.0),)), "SY301", "TR201")

    assert [
        (finding.measured.state, english(finding.measured.words), finding.severity)
        for finding in report.findings
        if finding.measured
    ] == [("not_measured", "the run used no GPU", "medium")] * 2


def test_every_line_of_a_statement_counts(project: Path) -> None:
    write(project, TRAIN.replace("total += loss.item()", "total += (\n        loss\n        .item()\n    )"))

    report = result(project, run(gpu=DRY, ms=MS, syncs=(wait(project, 27.0, line=ITEM + 2),)), "SY301")

    assert only(report).state == "costs"


def test_the_head_of_a_block_does_not_count_for_what_is_in_it(project: Path) -> None:
    write(project, TRAIN.replace("total += loss.item()", "if loss > 3:\n        total += slow()"))

    report = result(project, run(gpu=DRY, ms=MS, syncs=(wait(project, 27.0, line=ITEM + 1),)), "SY301")

    assert only(report).state == "not_reached"


# Copies and loaders.


def test_a_loader_that_does_not_pin_is_measured_where_its_batches_are_copied(project: Path) -> None:
    write(project, TRAIN.replace(", pin_memory=True", ""))
    use = loader(made_at=at(project, LOADER), pin_memory=False)
    copies = (CopySite(at(project, COPY), "<module>", 1.0, 12.0, 1e8, 0.0, 0.0),)

    evidence = run(gpu=DRY, ms={**MS, "h2d": 12.0}, loaders=(use,), copies=copies)

    assert only(result(project, evidence, "TR201")).ms_per_step == pytest.approx(12.0)


def test_a_setting_that_came_from_the_command_line_is_no_matter_in_this_run(project: Path) -> None:
    write(project, 'parser.add_argument("--workers", type=int, default=0)\n', "options.py")
    write(project, "from options import args\n" + TRAIN.replace("num_workers=4", "num_workers=args.workers"))
    use = loader(made_at=at(project, LOADER + 1), num_workers=8)

    report = result(project, run(gpu=DRY, ms={**MS, "data": 60.0}, loaders=(use,)), "IN101")

    assert replace(only(report), words=verbatim("")) == Measured("free", 0.0, 0.0)
    assert english(only(report).words) == "num_workers is 8 in this run"


@pytest.mark.parametrize(("data_ms", "state"), [(0.2, "free"), (40.0, "not_measured")])
def test_a_loader_costs_at_most_what_the_step_waits_for_it(project: Path, data_ms: float, state: str) -> None:
    write(project, TRAIN.replace("num_workers=4", "num_workers=0"))
    use = loader(made_at=at(project, LOADER), num_workers=0, cost=worker_cost(workers=0))

    report = result(project, run(ms={**MS, "data": data_ms}, loaders=(use,)), "IN101")

    assert only(report).state == state


def test_a_loader_that_was_never_made_was_not_reached(project: Path) -> None:
    write(project, TRAIN.replace("num_workers=4", "num_workers=0"))

    report = result(project, run(loaders=(loader(made_at=at(project, 99)),)), "IN101")

    assert only(report).state == "not_reached"


def test_a_finding_of_the_run_speaks_for_its_cause_in_another_file(project: Path) -> None:
    write(project, 'parser.add_argument("--workers", type=int, default=0)\n', "options.py")
    write(project, "from options import args\n" + TRAIN.replace("num_workers=4", "num_workers=args.workers"))
    use = loader(made_at=at(project, LOADER + 1), num_workers=0)
    gain = Gain(1.5, 2.0, 2.0, verbatim(""))
    found = Finding(
        "IN101", "input", "T", "high", use.made_at, {}, verbatim("the main process makes it"), None, None, gain
    )

    report = result(project, run(loaders=(use,), ms={**MS, "data": 60.0}, findings=(found,)), "IN101")

    assert report.findings[0].place.file == "options.py"
    assert only(report).state == "costs" and only(report).share == pytest.approx(0.5)
    assert english(only(report).words) == "the main process makes it"


# Lines and pauses.


def test_a_line_costs_what_was_seen_under_it(project: Path) -> None:
    write(project, TRAIN)
    evidence = run(ms=MS, all_lines=(took(project, COLLECT, 30.0, "gc"), took(project, COLLECT, 2.0)))

    assert only(result(project, evidence, "HO404")) == Measured("costs", 32.0, 0.32)


@pytest.mark.parametrize(("looks", "state"), [(1000.0, "free"), (100.0, "not_measured")])
def test_a_line_that_is_never_met_among_its_neighbours_is_free(project: Path, looks: float, state: str) -> None:
    write(project, TRAIN)
    evidence = run(ms=MS, all_lines=(took(project, COPY, 30.0),), line_looks=looks)

    assert only(result(project, evidence, "HO404")).state == state


def test_a_function_of_which_nothing_is_seen_was_not_reached(project: Path) -> None:
    write(project, "def train():\n" + "".join(f"    {line}\n" for line in TRAIN.splitlines()))
    evidence = run(ms=MS, all_lines=(took(project, 99, 30.0),), line_looks=1000.0)

    assert only(result(project, evidence, "HO404")).state == "not_reached"


def test_what_is_set_once_is_not_free_because_its_line_takes_no_time(project: Path) -> None:
    write(project, "torch.autograd.set_detect_anomaly(True)\n" + TRAIN)
    evidence = run(ms=MS, all_lines=(took(project, COPY, 30.0),), line_looks=1000.0)
    assert only(result(project, evidence, "HO405")).state == "not_measured"

    body = "    torch.autograd.set_detect_anomaly(True)\n" + "".join(f"    {line}\n" for line in TRAIN.splitlines())
    write(project, "def main():\n" + body)
    assert only(result(project, evidence, "HO405")).state == "not_measured"


SAVING = SourceFinding(
    "CA603", "cadence", "T", "medium", Place("train.py", COLLECT + 1, 5), verbatim("saves"), verbatim("save less")
)


@pytest.mark.parametrize(
    ("pauses_s", "phase_ms", "expected"),
    [
        (6.0, 20.0, Measured("costs", 20.0, 20.0 / 120.0)),
        (0.003, 0.01, Measured("free", 0.01, 0.01 / 100.01)),
        # Something else pauses the training.
        (0.0, 20.0, Measured("not_measured", words=verbatim("a run does not show what this costs"))),
    ],
)
def test_a_pause_is_measured_where_it_is_made(
    project: Path, pauses_s: float, phase_ms: float, expected: Measured
) -> None:
    write(project, TRAIN + "    torch.save(model, path)\n")
    site = PauseSite(at(project, COLLECT + 1), "<module>", "checkpoint", 300, pauses_s, 0.1)
    evidence = run(gpu=on_gpu(drained_share=0.0), ms={**MS, "checkpoint": phase_ms}, pauses=(site,))

    report = join_costs(CheckReport((SAVING,), 1), load([Path(".")]), stored(project), evidence)

    assert only(report).state == expected.state and english(only(report).words) == english(expected.words)
    assert only(report).ms_per_step == pytest.approx(expected.ms_per_step)


def test_a_line_of_a_worker_costs_its_part_of_the_wait(project: Path) -> None:
    write(project, "class Images(Dataset):\n    def __getitem__(self, i):\n        return slow(i)\n" + TRAIN)
    slow = SourceFinding(
        "IN199", "input", "T", "medium", Place("train.py", 3, 9), verbatim("slow"), verbatim("cache it")
    )
    line = LineCost(at(project, 3), "__getitem__", "worker", 0.5, 3.0)
    evidence = replace(run(ms={**MS, "data": 60.0}), worker_lines=(line,))

    report = join_costs(CheckReport((slow,), 1), load([Path(".")]), stored(project), evidence)

    assert only(report).state == "costs" and only(report).ms_per_step == pytest.approx(30.0)


# Files.


def test_a_changed_file_is_matched_by_the_text_of_its_lines(project: Path) -> None:
    write(project, "# a comment more\n" + TRAIN, is_old=False)
    recorded = stored(project)
    snippets = (Snippet(at(project, ITEM), "total += loss.item()"),)
    evidence = run(gpu=DRY, ms=MS, syncs=(wait(project, 27.0),), snippets=snippets)

    report = result(project, evidence, "SY301", recorded=recorded)

    assert only(report).state == "costs" and report.findings[0].place.line == ITEM + 1
    assert tuple(map(english, report.notices)) == (
        "changed since the run began, so that lines are matched by their text: train.py",
    )


@pytest.mark.parametrize("text", ["", "something = else_"])
def test_what_cannot_be_found_again_is_not_measured(project: Path, text: str) -> None:
    write(project, "# a comment more\n" + TRAIN, is_old=False)
    snippets = (Snippet(at(project, ITEM), text),) if text else ()

    report = result(project, run(gpu=DRY, ms=MS, syncs=(wait(project, 27.0),), snippets=snippets), "SY301")

    assert only(report).state == "not_measured" and "was changed" in english(only(report).words)


def test_a_run_from_another_machine_is_matched_by_the_end_of_its_paths(project: Path) -> None:
    (project / "tools").mkdir()
    write(project, TRAIN, "tools/train.py")
    write(project, "x = 1\n", "train.py")
    away = SyncSite(Location("/nowhere/else/tools/train.py", ITEM), "<module>", "item", 1.0, 27.0)

    assert only(result(project, run(gpu=DRY, ms=MS, syncs=(away,)), "SY301")).state == "costs"


def test_a_file_of_the_same_name_that_is_there_is_another(project: Path) -> None:
    write(project, TRAIN)
    (project.parent / "other").mkdir()
    write(project.parent / "other", TRAIN)
    other = SyncSite(Location(str(project.parent / "other/train.py"), ITEM), "<module>", "item", 1.0, 27.0)

    assert only(result(project, run(gpu=DRY, ms=MS, syncs=(other,)), "SY301")).state == "not_reached"


# The order.


def test_the_dearest_come_first_and_what_is_free_last(project: Path) -> None:
    write(project, TRAIN + "    seen.append(loss)\n    print(loss)\n    if loss > 3:\n        stop()\n")
    write(project, "def f(:\n", "broken.py")
    syncs = (wait(project, 5.0), wait(project, 0.01, ITEM + 3), wait(project, 20.0, ITEM + 4))
    lines = (took(project, COLLECT, 9.0),)

    report = result(project, run(gpu=DRY, ms=MS, syncs=syncs, all_lines=lines), "SY301", "HO404", "ME701")

    assert [(finding.code, finding.place.line) for finding in report.findings] == [
        (SYNTAX, 1),
        ("SY301", ITEM + 4),
        ("HO404", COLLECT),
        ("SY301", ITEM),
        ("ME701", ITEM + 2),
        ("SY301", ITEM + 3),
    ]
    assert report.findings[0].measured is None and report.findings[-1].severity == "low"


def test_a_run_without_steps_changes_nothing_and_is_said(project: Path) -> None:
    write(project, TRAIN)

    evidence = run()
    evidence = replace(evidence, report=replace(evidence.report, phases={}))

    report = result(project, evidence, "SY301")

    assert report.findings[0].measured is None
    assert len(report.notices) == 1 and "no training step" in english(report.notices[0])
