"""The same verdict sentence, main figures and next command in the terminal, in JSON and in HTML."""

from __future__ import annotations

import html as escaping
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from flatout.app.report import make_page, run_report
from flatout.errors import FlatoutError
from flatout.launch.run_page import run_html
from flatout.launch.verdict import judge_finished_run
from flatout.records.message import verbatim
from flatout.records.report import Finding, RunReport
from flatout.report import text
from flatout.report.html.page import draw_page
from flatout.report.html.run_page import RunMaterial, run_page
from flatout.report.json import to_json
from flatout.report.layout import Look
from flatout.report.overview import next_command
from flatout.report.terminal import render
from flatout.words import english
from tests.browser.recorded import whole_run
from tests.unit.report.test_terminal import HEALTHY, STARVED, UNSEEN

_FOUND = Finding(
    "IN101", "input", "t", "high", None, {}, verbatim("c"), "loader.workers", verbatim("num_workers=2"), None
)


def _words(page: str) -> str:
    """What a reader of the English page sees, tags taken out."""
    body = page[page.index("<main>") : page.index("</main>")]
    body = re.sub(r'<span class="in-zh" lang="zh">.*?</span>', "", body, flags=re.DOTALL)
    return " ".join(escaping.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def _element(page: str, name: str) -> str:
    found = re.search(rf'id="{name}">(.*?)</', page, flags=re.DOTALL)
    assert found is not None, name
    return escaping.unescape(re.sub(r"<[^>]+>", "", found[1])).strip()


@pytest.mark.parametrize("report", [STARVED, HEALTHY, replace(STARVED, findings=(_FOUND,))])
def test_verdict_figures_and_next_command_are_the_same_everywhere(report: RunReport) -> None:
    shown = " ".join(render(report, Look(width=120)).split())
    value = to_json(report)
    page = draw_page(run_page(RunMaterial(report)))

    sentence = value["verdict"]["sentence"]
    assert sentence in shown and _element(page, "sentence") == sentence
    assert f"Next {value['next']}" in shown and _element(page, "next") == value["next"]
    rates, gpu = value["throughput"], value["gpu"]
    samples, steps = text.figure(rates["samples_per_s"]), text.figure(rates["steps_per_s"])
    starved, util = text.percent(gpu["starved_share"]), f"{gpu['util_mean']:.0f}%"
    figures = {
        f"{samples} samples/s": f"samples/s {samples}",
        f"{steps} it/s": f"it/s {steps}",
        f"starved {starved}": f"GPU starved {starved}",
        f"util {util}": f"GPU utilisation {util}",
    }
    for in_terminal, in_html in figures.items():
        assert in_terminal in shown and in_html in _words(page)
    for name, phase in value["phases"].items():
        if phase["share"] >= 0.01:
            figure = f"{name} {text.percent(phase['share'])} {text.milliseconds(phase['ms'])}"
            assert figure in _words(page) and text.milliseconds(phase["ms"]) in shown


def test_a_run_without_steps_says_so_everywhere() -> None:
    page = draw_page(run_page(RunMaterial(UNSEEN)))

    assert "No training step was seen." in render(UNSEEN) and "No training step was seen." in _words(page)
    assert to_json(UNSEEN)["next"] == _element(page, "next") == "flatout doctor"


def test_what_was_not_measured_is_said_not_shown_as_zero() -> None:
    report = replace(STARVED, throughput=replace(STARVED.throughput, samples_per_s=None), gpu=None, host=None)

    words = _words(draw_page(run_page(RunMaterial(report))))

    assert "samples/s not measured" in words and "GPU utilisation not measured" in words
    assert "GPU utilisation and power over time" in words


@pytest.mark.parametrize(
    ("report", "command"),
    [
        (replace(STARVED, findings=(_FOUND,)), "flatout fix train.py"),
        (
            replace(STARVED, findings=(replace(_FOUND, remedy=None, fix="flatout check --fix a.py"),)),
            "flatout check --fix a.py",
        ),
        (
            replace(STARVED, findings=(replace(_FOUND, remedy=None, fix="flatout check --fix --unsafe-fixes a"),)),
            "flatout explain IN101",
        ),
        (STARVED, "flatout diagnose --checklist 20260101-120000-train-ab12"),
        (UNSEEN, "flatout doctor"),
    ],
)
def test_the_next_command_is_the_nearest_to_a_gain(report: RunReport, command: str) -> None:
    assert next_command(report) == command


def test_words_with_spaces_can_be_pasted() -> None:
    report = replace(STARVED, findings=(_FOUND,), run=replace(STARVED.run, argv=("my train.py", "--name", "a;b")))

    assert next_command(report) == "flatout fix 'my train.py' --name 'a;b'"


def test_a_stored_run_becomes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = whole_run(tmp_path)
    file = tmp_path / "page.html"

    code = run_report(str(run.path), out=str(file), language="zh", quiet=False)

    page = file.read_text()
    report = judge_finished_run(run.path, run.manifest.argv)
    assert code == 0 and f"wrote {file}" in capsys.readouterr().err
    assert 'data-lang="zh"' in page
    assert _element(page, "sentence") == english(report.verdict.sentence)
    assert _element(page, "next") == next_command(report) == "flatout fix train.py"
    words = _words(page)
    assert "loss = model(batch)" in words and "IN101" in words and "What it is" in words
    data = json.loads(page[page.index('id="data">') + 10 : page.index("</script>")])
    charts = {chart["name"]: chart for chart in data["charts"]}
    assert {"gpu", "starved", "phases", "step", "rate", "memory", "cpu", "disk", "tree_cpu", "tree_memory"} <= set(
        charts
    )
    assert [mark[0] for mark in data["marks"]] == ["eval", "checkpoint", "eval", "checkpoint"]
    assert '<html lang="en"' in run_html(run.path, "en")


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    run = whole_run(tmp_path)

    with pytest.raises(FlatoutError, match="--lang must be one of en, zh, got 'fr'"):
        run_report(str(run.path), out=None, language="fr", quiet=True)
    with pytest.raises(FlatoutError, match="could not be written"):
        run_report(str(run.path), out=str(tmp_path / "no" / "page.html"), language="en", quiet=True)
    with pytest.raises(FlatoutError, match="no single run"):
        make_page(str(tmp_path / "nothing"))
    (tmp_path / "fix.json").write_text("[]")
    with pytest.raises(FlatoutError, match="is not the record of a fix"):
        make_page(str(tmp_path / "fix.json"))
