"""The one-file report in a real browser: drawn, zoomed, switched, printed, and silent."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from flatout.app.report import make_page, run_material
from flatout.report.html.fix_page import FixMaterial, fix_page
from flatout.report.html.page import draw_page
from flatout.report.html.run_page import run_page
from tests.browser.conftest import UNTRANSLATED, Browser
from tests.browser.recorded import whole_run
from tests.unit.report.test_fix import FIX
from tests.unit.report.test_html_fix import BARE, PROFILE
from tests.unit.report.test_html_page import evil_material

# The canvas of every chart, and how many of its pixels have been painted in a colour that is no grey.
_PAINTED = """
return [...document.querySelectorAll('.chart')].map((chart) => {
  const canvas = chart.querySelector('canvas');
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let painted = 0;
  for (let i = 0; i < pixels.length; i += 4) {
    const [r, g, b, a] = pixels.slice(i, i + 4);
    if (a > 40 && Math.max(r, g, b) - Math.min(r, g, b) > 24) painted += 1;
  }
  return [chart.dataset.name, painted];
});
"""
_RANGES = "return [...document.querySelectorAll('.chart')].map((c) => [+c.dataset.from, +c.dataset.to])"
_SHOWN = "return getComputedStyle(document.querySelector(arguments[0])).display"
# What the catalogue says of any run is not printed.
_FOLDED = "return document.querySelectorAll('details:not([open]):not(.aside)').length"
_CHARTS = 12


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    file = folder / "page.html"
    file.write_text(draw_page(make_page(str(whole_run(folder).path))[1]), encoding="utf-8")
    return file


def _ranges(browser: Browser) -> list[Any]:
    return list(browser.run(_RANGES))


def test_every_chart_is_drawn_and_nothing_complains_or_is_fetched(browser: Browser, page: Path) -> None:
    browser.open(page)

    painted = dict(browser.run(_PAINTED))
    assert len(painted) == _CHARTS and {"gpu", "phases", "memory", "disk"} <= set(painted)
    assert min(painted.values()) > 50, painted
    assert painted["phases"] > 5_000
    assert browser.console() == []
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.run("return performance.getEntriesByType('resource').length") == 0


def test_dragging_across_one_chart_zooms_all_and_a_double_click_brings_all_back(browser: Browser, page: Path) -> None:
    browser.open(page)
    whole = _ranges(browser)
    assert len(whole) == _CHARTS and len({tuple(one) for one in whole}) == 1

    browser.drag('.chart[data-name="phases"] .u-over', 0.25, 0.75)

    browser.until(lambda: _ranges(browser) != whole, "the zoom")
    low, high = _ranges(browser)[0]
    assert low == pytest.approx(0.25 * whole[0][1], rel=0.1) and high == pytest.approx(0.75 * whole[0][1], rel=0.1)
    assert all(one == [low, high] for one in _ranges(browser))
    browser.double_click('.chart[data-name="gpu"] .u-over')
    browser.until(lambda: _ranges(browser) == whole, "the whole run")
    assert browser.console() == []


def test_the_buttons_zoom_too(browser: Browser, page: Path) -> None:
    browser.open(page)
    (whole, *_) = _ranges(browser)

    browser.click("#zoom-in")
    browser.until(lambda: _ranges(browser)[0] != whole, "the zoom")
    assert all(high - low == pytest.approx(whole[1] / 2) for low, high in _ranges(browser))
    browser.click("#zoom-reset")
    browser.until(lambda: all(one == whole for one in _ranges(browser)), "the whole run")


def test_dark_by_the_system_and_by_the_switch(browser: Browser, page: Path) -> None:
    def brightness() -> int:
        colour = browser.run("return getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.strip("rgb()").split(","))

    browser.open(page, dark=True)
    assert brightness() < 150
    browser.click("#theme")
    assert brightness() > 600
    browser.open(page)
    assert brightness() > 600
    browser.click("#theme")
    assert brightness() < 150
    assert min(dict(browser.run(_PAINTED)).values()) > 50
    assert browser.console() == []


def test_both_languages_are_in_the_file(browser: Browser, page: Path) -> None:
    browser.open(page)
    english = browser.text()
    assert "Where the step time goes" in english and "Checklist" in english and "每步时间的去向" not in english

    browser.click("#language")

    chinese = browser.text()
    assert "每步时间的去向" in chinese and "检查清单" in chinese and "Where the step time goes" not in chinese
    assert browser.run("return document.documentElement.lang") == "zh"
    assert "各阶段占一步的比例" in browser.text('.chart[data-name="phases"]')
    assert browser.run(UNTRANSLATED) == []
    assert "GPU 等待数据的时间占每步的 50%" in browser.text("#sentence")
    assert "批次在主进程里制作" in browser.text("#findings")
    # What was measured, and what to type, is the same in both.
    assert browser.text("#next") in english
    browser.click("#language")
    assert browser.text() == english
    assert browser.console() == []


def test_it_opens_in_the_language_that_was_asked_for(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(draw_page(make_page(str(whole_run(tmp_path).path))[1], "zh"), encoding="utf-8")

    browser.open(file)

    assert "主要数值" in browser.text("#figures") and browser.text("#language") == "English"


def test_blocks_of_the_bar_tell_their_figures_to_mouse_and_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page)

    browser.run("document.querySelector('.block.phase-data').focus()")

    assert browser.text(".detail").startswith("data · 50% · ")
    browser.run("document.querySelector('.block.of-line').dispatchEvent(new MouseEvent('mouseenter'))")
    assert "train.py:6" in browser.text(".detail")


@pytest.mark.parametrize("width", [360, 768])
def test_a_narrow_screen_needs_no_sideways_scrolling(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width=width)

    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert min(dict(browser.run(_PAINTED)).values()) > 20


@pytest.mark.parametrize("language", ["en", "zh"])
def test_nor_do_long_names(browser: Browser, tmp_path: Path, language: str) -> None:
    file = tmp_path / "page.html"
    run = whole_run(tmp_path, ("train.py", "--out", f"/{'experiment' * 20}"), "function" * 20)
    file.write_text(draw_page(make_page(str(run.path))[1], language), encoding="utf-8")

    browser.open(file, width=360)

    assert browser.run("return document.documentElement.scrollWidth") <= 360


def test_printed_everything_is_unfolded_and_the_switches_are_gone(browser: Browser, page: Path) -> None:
    browser.open(page, dark=True)
    folded = browser.run(_FOLDED)

    browser.media("print")
    browser.run("dispatchEvent(new Event('beforeprint'))")

    assert folded > 0 and browser.run(_FOLDED) == 0
    assert browser.run(_SHOWN, ".top nav") == "none" and browser.run(_SHOWN, ".chart-tools") == "none"
    assert browser.run("return document.documentElement.dataset.theme") == "light"
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run(_FOLDED) == folded
    pdf = base64.b64decode(browser.pdf())
    assert pdf.startswith(b"%PDF-") and len(pdf) > 30_000
    assert browser.console() == []


def test_a_name_that_is_a_script_stays_a_name(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(draw_page(run_page(evil_material())), encoding="utf-8")

    browser.open(file)

    assert browser.run("return window.owned") is None
    assert browser.run("return document.scripts.length") == 2 and browser.run("return document.images.length") == 0
    assert "<script>window.owned = 1</script>" in browser.text("#sentence")
    assert "<script>window.owned = 1</script>" in browser.text('.chart[data-name="gpu"]')
    assert browser.console() == [] and browser.requests() == [file.resolve().as_uri()]


def test_the_policy_would_stop_a_script_and_a_request(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.requests()

    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.owned = 1'; document.body.append(s)"
    )
    browser.run("const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'")
    browser.run("fetch('http://127.0.0.1:9/').catch(() => { window.refused = true })")

    browser.until(lambda: browser.run("return window.refused"), "the refusal")
    assert browser.run("return window.owned") is None
    refusals = [line for line in browser.console() if "Content Security Policy" in line]
    for what in ("inline script", "x.png", "Fetch API"):
        assert any(what in line for line in refusals), what


def test_the_page_of_a_fix(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "fix.html"
    before = run_material(whole_run(tmp_path))
    material = FixMaterial(FIX, (*BARE, *PROFILE), before, before.report, "fix")
    file.write_text(draw_page(fix_page(material)), encoding="utf-8")

    browser.open(file, width=360)

    assert browser.run("return document.documentElement.scrollWidth") <= 360
    assert browser.text("#gain") == "×3.05"
    # Every interval, histogram and curve has a size.
    sizes = browser.run(
        "return [...document.querySelectorAll('.interval circle, .arm .bars, .losses, .flame')].map("
        "(one) => Math.min(one.getBoundingClientRect().width, one.getBoundingClientRect().height))"
    )
    assert len(sizes) >= 7 and min(sizes) > 0
    assert len(dict(browser.run(_PAINTED))) == _CHARTS
    browser.click("#language")
    assert "尝试过的全部措施" in browser.text()
    assert browser.run(UNTRANSLATED) == []
    assert browser.console() == []
