"""The dashboard in a real browser: it draws, follows, zooms, speaks both languages, and executes nothing of a run's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flatout.dashboard.run_list import key_of
from tests.browser.conftest import UNTRANSLATED, Browser
from tests.dashboard import GrowingRun, Server, serving

EVIL = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'
_CANVAS = "return document.querySelectorAll('#charts canvas').length"
_INKED = """
const canvas = document.querySelector(`#chart-${arguments[0]} canvas`);
const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
return data.filter((value, k) => k % 4 === 3 && value > 0).length;
"""
_RANGES = "return [...document.querySelectorAll('.chart')].map((c) => [+c.dataset.from, +c.dataset.to])"
_IS_SHOWN = "return document.querySelector(arguments[0]).checkVisibility()"
_OVERLAPPING = """
return [...document.querySelectorAll('.chart')]
  .filter((chart) => chart.querySelector('.u-wrap').clientWidth > chart.clientWidth).length
"""
_SHOW = """
Object.defineProperty(document, "hidden", { value: !arguments[0], configurable: true });
document.dispatchEvent(new Event("visibilitychange"));
"""
# What a browser notes of a stream that its page has closed.
_FAILED = "Network.loadingFailed"
_PAPER = "return getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run(root: Path) -> Iterator[GrowingRun]:
    growing = GrowingRun(root, ("train.py", EVIL), seconds=60)
    yield growing
    growing.end()


@pytest.fixture(scope="module")
def stored(root: Path) -> Path:
    ended = GrowingRun(root, ("old.py", EVIL), seconds=30)
    ended.end()
    return ended.path


@pytest.fixture(scope="module")
def server(root: Path, stored: Path, run: GrowingRun) -> Iterator[Server]:
    with serving(root) as started:
        yield started


Visit = Callable[..., Browser]


@pytest.fixture
def visit(browser: Browser, server: Server) -> Visit:
    """Open the page of a run as a person does: by the address that was printed, which then holds no token."""

    def visited(path: Path, *, width: int = 1200, dark: bool = False) -> Browser:
        screen = {"width": width, "height": 1400, "deviceScaleFactor": 1, "mobile": False}
        browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        browser.media("screen", dark=dark)
        browser.driver.get(server.url)
        browser.until(lambda: "token" not in browser.driver.current_url, "the address without its token")
        browser.console()
        browser.requests()
        browser.driver.get(f"http://127.0.0.1:{server.port}/run/{key_of(path)}")
        browser.until(lambda: browser.run(_CANVAS), "the charts")
        return browser

    return visited


def test_a_run_in_progress_is_drawn_and_followed(visit: Visit, run: GrowingRun, server: Server) -> None:
    page = visit(run.path)
    page.until(lambda: page.text("#badge") == "input-bound", "the verdict")
    before = page.text("#steps")

    run.second()
    page.until(lambda: page.text("#steps") != before, "the next steps")

    assert page.text("#state") == "running"
    assert "waits for data" in page.text("#sentence") and page.text("#next").startswith("flatout ")
    assert page.text("#figure-samples") == "640"
    assert all(page.run(_INKED, chart) > 500 for chart in ("speed", "phases", "gpu", "queue", "ram"))
    assert page.run("return document.querySelectorAll('#phase-bar rect').length") == 6
    assert page.console() == []
    assert {address.split("/")[2] for address in page.requests()} == {f"127.0.0.1:{server.port}"}


def test_a_tab_that_nobody_sees_is_not_told_anything_and_catches_up(visit: Visit, run: GrowingRun) -> None:
    page = visit(run.path)
    before = page.text("#steps")

    page.run(_SHOW, False)
    page.until(lambda: any(_FAILED in entry["message"] for entry in page.driver.get_log("performance")), "its end")
    run.second()
    page.run(_SHOW, True)
    page.until(lambda: page.text("#steps") != before, "what was missed")

    assert any(address.endswith("/events") for address in page.requests())
    assert not page.run(_IS_SHOWN, "#trouble") and page.console() == []


def test_what_a_run_is_called_stays_text(visit: Visit, run: GrowingRun, server: Server) -> None:
    page = visit(run.path)
    on_its_page = page.text("#command")

    page.driver.get(f"http://127.0.0.1:{server.port}/")
    page.until(lambda: EVIL in page.text(), "the list of runs")

    assert EVIL in on_its_page
    assert page.run("return window.pwned") is None
    assert page.run("return document.querySelectorAll('main img, main script').length") == 0
    assert page.console() == []


def test_all_charts_are_zoomed_together(visit: Visit, run: GrowingRun) -> None:
    page = visit(run.path)
    ((begin, end), *_) = page.run(_RANGES)

    page.drag("#chart-speed .u-over", 0.25, 0.5)
    page.until(lambda: page.run(_IS_SHOWN, "#zoom-reset"), "the way back")
    zoomed = page.run(_RANGES)
    page.click("#zoom-reset")
    page.until(lambda: not page.run(_IS_SHOWN, "#zoom-reset"), "all of it again")

    assert len({tuple(shown) for shown in zoomed}) == 1
    assert begin < zoomed[0][0] and zoomed[0][1] - zoomed[0][0] < 0.4 * (end - begin)
    assert page.run(_RANGES)[0][0] == begin


def test_both_languages_and_dark_colours(visit: Visit, run: GrowingRun) -> None:
    page = visit(run.path)
    page.until(lambda: page.text("#badge"), "the verdict")
    light, english = page.run(_PAPER), page.text("#figures-title")
    sentences = [page.text("#sentence")]

    page.click("#language")
    chinese = (page.text("#figures-title"), page.text("#state"), page.text("#badge"))
    sentences.append(page.text("#sentence"))
    untranslated = page.run(UNTRANSLATED)
    overlapping = page.run(_OVERLAPPING)
    page.click("#language")
    visit(run.path, dark=True)
    dark = page.run(_PAPER)
    page.click("#theme")
    chosen = page.run(_PAPER)
    page.click("#theme")
    page.click("#theme")

    assert (english, chinese) == ("The last seconds", ("最近几秒", "运行中", "输入受限"))
    assert re.findall(r"\d+", sentences[0]) == re.findall(r"\d+", sentences[1]) and "等待数据" in sentences[1]
    assert untranslated == []
    assert overlapping == 0
    assert dark != light and chosen == light
    assert page.console() == []


def test_a_narrow_screen_does_not_scroll_sideways(visit: Visit, run: GrowingRun) -> None:
    page = visit(run.path, width=360)
    page.until(lambda: page.text("#badge"), "the verdict")

    assert page.run("return document.documentElement.scrollWidth") <= 360


def test_a_stored_run_and_its_report_say_the_same(visit: Visit, stored: Path) -> None:
    page = visit(stored)
    page.until(lambda: page.run(_IS_SHOWN, "#report"), "the link to the report")
    told = [page.text(part) for part in ("#sentence", "#next")]
    state = (page.text("#state"), page.text("#figures-title"))

    page.click("#report")
    page.until(lambda: "/report/" in page.driver.current_url and page.run(_CANVAS), "the report")

    assert state == ("finished", "The whole run")
    assert [page.text(part) for part in ("#sentence", "#next")] == told
    assert page.run("return window.pwned") is None
    assert page.console() == []


def test_without_a_token_nothing_is_shown(browser: Browser, server: Server) -> None:
    browser.driver.get(server.url)
    browser.driver.delete_all_cookies()

    browser.driver.get(f"http://127.0.0.1:{server.port}/")

    assert browser.text().startswith("401")
