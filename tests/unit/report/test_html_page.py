"""The frame of a page: words in both languages, data that is inert, and a policy that lets nothing in."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import string
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.diagnose.verdict import make_checklist
from flatout.records.message import verbatim
from flatout.records.report import Finding, Gain, LineCost, Location, RemedyState, SourceSide, Unmeasured
from flatout.records.timeline import Curves, Excerpt, Mark, ProcessUse, SettingLine, StepTimes, Timeline
from flatout.report.fix import render
from flatout.report.html.page import draw_page, inert_json, say, show
from flatout.report.html.run_page import RunMaterial, run_page
from flatout.words.pages import PAGE
from tests.cases.evidence import run as evidence_of
from tests.unit.report.test_fix import FIX
from tests.unit.report.test_terminal import HEALTHY, STARVED, UNSEEN

ENGLISH = {name: words.english for name, words in PAGE.items()}
CHINESE = {name: words.chinese for name, words in PAGE.items()}
EVIL = "</script><script>window.owned = 1</script><img src=x onerror=alert(1)> & \u2028 'x' \"y\" {{ 7 * 7 }}"
HERE = Location("/proj/train.py", 12)


class _Tags(HTMLParser):
    """Every tag with its attributes, and what stands in scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, str]] = []
        self._open = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in ("script", "style"):
            self.inside.append((self._open, data))


def timeline(name: str = "util") -> Timeline:
    curves = {
        "gpu": Curves((0.0, 1.0, 2.0), {name: (0.1, 0.9, None)}),
        "phases": Curves((0.0, 1.0), {"data": (0.5, 0.4), "forward": (0.5, 0.6)}),
    }
    return Timeline(
        end_s=2.0,
        curves=curves,
        limits={"memory": 1e9},
        marks=(Mark("eval", 0.5, 0.7),),
        processes=(ProcessUse(1, "main", 1.2, 1e9, None, 4.0, 0.0, 2.0),),
        more_processes=3,
        step_times=StepTimes(10.0, 12.0, 13.0, 20.0, (9.0, 13.4, 20.0), (98, 2)),
        gpus=1,
    )


def evil_material() -> RunMaterial:
    finding = Finding(
        EVIL,
        "input",
        EVIL,
        "high",
        HERE,
        {EVIL: EVIL},
        verbatim(EVIL),
        "x",
        verbatim(EVIL),
        Gain(1, 2, 3, verbatim(EVIL)),
        fix=EVIL,
    )
    report = replace(
        STARVED,
        run=replace(STARVED.run, id=EVIL, argv=(EVIL, "--name", EVIL)),
        verdict=replace(STARVED.verdict, sentence=verbatim(EVIL)),
        findings=(finding,),
        lines=(LineCost(replace(HERE, file=EVIL), EVIL, "data", 0.4, 4.0),),
        notices=(verbatim(EVIL),),
        environment={"host": EVIL, "os": EVIL},
        remedies=(RemedyState(EVIL, EVIL, EVIL, EVIL, verbatim(EVIL)),),
        source=SourceSide(1, 0, (Unmeasured(EVIL, EVIL, HERE),), EVIL),
    )
    return RunMaterial(
        report,
        timeline(EVIL),
        settings=(SettingLine(EVIL, EVIL, EVIL, EVIL, "lost"),),
        excerpts={HERE: Excerpt(HERE, 12, (EVIL,))},
        explained={EVIL: f"{EVIL}\n\nWhat it is: {EVIL}\n\n    {EVIL}"},
    )


def test_both_languages_have_the_same_words() -> None:
    assert set(ENGLISH) == set(CHINESE)
    assert all(words.strip() for words in (*ENGLISH.values(), *CHINESE.values()))


def test_both_languages_fill_in_the_same_figures() -> None:
    def fields(words: str) -> set[str | None]:
        return {name for _, name, _, _ in string.Formatter().parse(words) if name}

    assert {name: fields(words) for name, words in ENGLISH.items()} == {n: fields(w) for n, w in CHINESE.items()}


def test_chinese_is_chinese() -> None:
    # Terms that are the same in both.
    same = {"chart_gpu", "env_python", "env_torch", "rank", "sentence"}

    plain = [name for name, words in CHINESE.items() if not re.search("[\u4e00-\u9fff]", words)]

    assert set(plain) <= same, plain


def test_every_word_is_used_and_every_word_that_is_used_is_there() -> None:
    places = [one for one in files("flatout.report.html").iterdir() if one.name.endswith((".html", ".py", ".js"))]
    places.append(files("flatout.report") / "overview.py")
    text = "".join(one.read_text(encoding="utf-8") for one in places)
    text = text.replace("page.healthy", "healthy")
    # Put together from a prefix and a name of the run's.
    made = ("bound", "healthy", "phase", "chart", "setting", "check", "group", "remedy", "unmeasured", "env", "state")
    prefixes = tuple(f"{one}_" for one in (*made, "mark", "quality", "proof", "safety", "unit", "compare"))

    unused = [name for name in ENGLISH if f'"{name}"' not in text and not name.startswith(prefixes)]
    unknown = [name for name in re.findall(r'say\("(\w+)"[,)]', text) if name not in ENGLISH]

    assert not unused and not unknown


def test_the_checklist_is_asked_in_chinese_too() -> None:
    asked = {check.asked for check in make_checklist(evidence_of())}

    assert all("in-zh" in show(words) for words in asked)


def test_a_fix_without_effect_is_told_in_the_words_of_the_terminal() -> None:
    page = render(replace(FIX, profile={}), width=200, color=False, unicode=True)

    assert ENGLISH["fix_healthy"] in page


def test_values_in_words_are_escaped() -> None:
    assert "<b>" not in say("exit_code", code="<b>")


@given(st.recursive(st.text() | st.none() | st.integers(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)))
def test_json_in_a_page_is_inert_and_says_the_same(value: object) -> None:
    text = str(inert_json(value))

    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == value


@pytest.mark.parametrize("report", [STARVED, HEALTHY, UNSEEN])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_any_run_makes_a_page(report: object, language: str) -> None:
    html = draw_page(run_page(RunMaterial(report)), language)  # type: ignore[arg-type]

    assert html.startswith("<!doctype html>") and f'data-lang="{language}"' in html
    assert len(html) < 300_000


def test_what_a_run_is_called_is_never_markup() -> None:
    html = draw_page(run_page(evil_material()))

    found = _Tags(html)
    scripts = [attributes for tag, attributes in found.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on")]
    assert "{{ 7 * 7 }}" in html and "window.owned = 1</script>" not in html


def test_nothing_is_named_that_could_be_fetched_and_nothing_is_styled_in_place() -> None:
    found = _Tags(draw_page(run_page(evil_material())))

    asking = {"src", "srcset", "href", "action", "data", "poster", "xlink:href"}
    assert not [tag for tag in found.tags if asking & set(tag[1])]
    # The policy would forbid it: a style attribute would silently do nothing.
    assert not [tag for tag in found.tags if "style" in tag[1]]
    css = "".join(text for kind, text in found.inside if kind == "style")
    assert "url(" not in css and "@import" not in css


def test_the_policy_names_the_one_script_and_the_one_style() -> None:
    html = draw_page(run_page(RunMaterial(STARVED, timeline())))

    policy = next(a["content"] for tag, a in _Tags(html).tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'") and "unsafe" not in policy
    script = html[html.rindex("<script>") + len("<script>") : html.rindex("</script>")]
    style = html[html.index("<style>") + len("<style>") : html.index("</style>")]
    for kind, text in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy


def test_bytes_that_are_no_text_do_not_stop_the_page() -> None:
    report = replace(STARVED, run=replace(STARVED.run, argv=("tr\udcffain.py",)))

    assert "ain.py" in draw_page(run_page(RunMaterial(report)))


def test_every_file_of_the_page_is_packed() -> None:
    names = {one.name for one in files("flatout.report.html").iterdir()}

    assert {"page.html", "run.html", "fix.html", "base.css", "report.css", "charts.js", "report.js"} <= names
    vendored = {one.name for one in files("flatout.report.html").joinpath("vendor").iterdir()}
    assert vendored == {"uPlot.iife.min.js", "uPlot.min.css", "uPlot-LICENSE.txt"}
