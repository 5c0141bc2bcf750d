"""The HTML page of a comparison: the same figures, in both languages, and inert whatever the runs are called."""

from __future__ import annotations

import re
import string
from dataclasses import replace
from html import unescape

import pytest

from flatout.records.comparison import Compared, Gate, PhaseChange, SettingChange
from flatout.records.message import verbatim
from flatout.report.compare import render
from flatout.report.html.compare_page import compare_page
from flatout.report.html.page import draw_page
from flatout.words import english
from flatout.words.pages import TABLE
from tests.unit.report.test_compare import AFTER, FOUND, GAIN, ONE

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def _html(compared: Compared, language: str = "en") -> str:
    return draw_page(compare_page(compared), language, "1.0", 0.0)


def _body(html: str) -> str:
    return html.partition("<main>")[2].partition("</main>")[0]


def test_sentence_rates_and_interval_are_those_of_the_terminal() -> None:
    compared = Compared((ONE,), Gate(0.97, ()))

    words = " ".join(unescape(re.sub(r"<[^>]+>", " ", _body(_html(compared)))).split())
    page = " ".join(render(compared, width=200, color=False, unicode=True).split())

    for said in (
        english(ONE.sentence),
        "×2.000 (1.900 … 2.100)",
        "640",
        "20.0",
        "50.0 ms",
        "num_workers",
        "IN101 No workers",
    ):
        assert said in words and said in page, said
    assert "Gate passed" in words


@pytest.mark.parametrize("id", [id for id in TABLE if id.startswith("page.compare_")])
def test_both_languages_say_it_with_the_same_values(id: str) -> None:
    fields = [{field for _, field, _, _ in string.Formatter().parse(text) if field} for text in TABLE[id]]

    assert all(TABLE[id]) and fields[0] == fields[1]


def test_names_of_strangers_are_inert_and_nothing_is_fetched() -> None:
    finding = replace(FOUND, title=EVIL, cause=verbatim(EVIL))
    evil = replace(
        ONE,
        after=replace(AFTER, name=EVIL, device=EVIL),
        sentence=verbatim(EVIL),
        settings=(SettingChange(EVIL, EVIL, EVIL, [EVIL]),),
        new=(finding,),
        notices=(verbatim(EVIL),),
    )

    html = _html(Compared((evil,), Gate(0.97, (EVIL,))))

    assert "<script>alert" not in html and "<img" not in html
    assert "default-src 'none'" in unescape(html)
    assert not re.search(r"\bstyle=|\bon\w+=\"|(?:src|href)=\"", _body(html))


def test_bars_are_to_one_scale_and_never_longer_than_their_room() -> None:
    (pair,) = compare_page(Compared((ONE,))).context["pairs"]

    ends = [max(block.x + block.width for block in bar.blocks) for _, bar in pair["bars"]]
    assert ends[0] == pytest.approx(100.0, abs=0.01)
    assert ends[1] == pytest.approx(100 * 30.0 / 80.001, abs=0.01)


def test_every_interval_lies_on_the_axis_and_one_is_on_it() -> None:
    far = replace(ONE, gain=replace(GAIN, low=0.001, mid=0.01, high=40.0))

    context = compare_page(Compared((ONE, far))).context

    for row in context["rows"][1:]:
        low, mid, high = row["whole"]
        assert 0 <= low <= mid <= high <= 100
    assert (context["one_at"], "×1") in context["ticks"]


def test_what_was_not_measured_is_drawn_as_such() -> None:
    unknown = replace(ONE, gain=None, ordinary_gain=None, judgement="not measured", phases=(), settings=(), gone=())

    body = _body(_html(Compared((unknown,)), "zh"))

    assert "NOT MEASURED" in body and "未测量" in body
    assert "None recorded." in body and "None in either." in body


def test_a_phase_that_did_not_change_is_the_same_not_plus_zero() -> None:
    still = replace(ONE, phases=(PhaseChange("data", (5.0, 5.0), (1.0, 1.0), None),))

    (pair,) = compare_page(Compared((still,))).context["pairs"]

    assert pair["phases"][0]["difference"] is None
