"""Verdicts while a run goes on."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from flatout.launch.live import BackgroundVerdict, LiveVerdict
from flatout.report.json import to_json
from flatout.store.directory import RunDirectory
from flatout.words import english
from tests.dashboard import GrowingRun
from tests.integration.running import until


def test_a_running_run_is_judged_and_not_all_the_time(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, seconds=10)
    judging = LiveVerdict(run.path)
    before = judging.is_due(steps=200)

    report = judging.judge()
    run.end()

    assert report is not None and report.verdict.bound == "input"
    assert (before, judging.is_due(steps=200)) == (True, False)


def test_what_was_found_is_looked_at_again_soon_and_then_less_often(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, seconds=10)
    now_s = 0.0
    judging = LiveVerdict(run.path, clock=lambda: now_s)
    judged_s = []

    for second in range(600):
        now_s = float(second)
        if judging.is_due(steps=200):
            judging.judge()
            judged_s.append(second)
    run.end()

    pauses = [after - before for before, after in pairwise(judged_s)]
    # Longer where judging took so much of a core that it has to be paid off first.
    assert len(pauses) >= 2 and judged_s[0] == 0
    assert all(pause >= least for pause, least in zip(pauses, (15, 30, 60, *[120] * len(pauses)), strict=False))


def test_nothing_is_judged_before_the_first_steps(tmp_path: Path) -> None:
    assert not LiveVerdict(tmp_path).is_due(steps=0)


def test_a_finished_run_says_what_it_said(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, seconds=10)
    judged = LiveVerdict(run.path).judge()
    assert judged is not None
    run.end()
    summary = to_json(judged)
    summary["verdict"]["sentence"] = "What the terminal said."
    del summary["facts"]["/verdict/sentence"]
    RunDirectory(run.path, run.path).write_summary(summary)

    report = LiveVerdict(run.path).judge()

    assert report is not None and english(report.verdict.sentence) == "What the terminal said."


def test_a_run_that_cannot_be_judged_is_not_judged(tmp_path: Path) -> None:
    assert LiveVerdict(tmp_path / "gone").judge() is None


def test_a_view_is_not_kept_waiting(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, seconds=10)
    judged = BackgroundVerdict(run.path)

    first = judged.report(steps=200)
    until(lambda: judged.report(steps=200) is not None)
    judged.close()
    run.end()

    assert first is None
