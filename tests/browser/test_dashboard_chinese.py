"""The dashboard in Chinese: what was found in a run is told in the reader's language."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flatout.dashboard.run_list import key_of
from flatout.words.render import problem_words
from tests.browser.conftest import UNTRANSLATED, Browser
from tests.browser.recorded import whole_run
from tests.dashboard import serving
from tests.unit.diagnose.test_machine import made


@pytest.mark.parametrize("width", [360, 1200])
def test_findings_are_told_in_chinese_and_back_in_english(browser: Browser, tmp_path: Path, width: int) -> None:
    stored = whole_run(tmp_path)
    screen = {"width": width, "height": 1400, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)

    with serving(tmp_path / "runs") as server:
        browser.driver.get(server.url)
        browser.until(lambda: "token" not in browser.driver.current_url, "the address without its token")
        browser.console()
        browser.driver.get(f"http://127.0.0.1:{server.port}/run/{key_of(stored.path)}")
        browser.until(lambda: browser.run("return document.querySelector('.finding')"), "the findings")
        english, sentence = browser.text("#findings"), browser.text("#sentence")
        browser.click("#language")
        chinese, own = browser.text("#findings"), browser.text(".finding .as-written")
        untranslated, spoken = browser.run(UNTRANSLATED), browser.text("#sentence")
        room = browser.run("return document.documentElement.scrollWidth")
        browser.click("#language")
        again = browser.text("#findings")

    words = problem_words()["IN101"]
    assert all(said.replace("`", "") in chinese for said in (words.title.chinese, words.what_it_is, words.what_to_do))
    # The run's own figures are below, the same in both.
    figures = re.findall(r"\d[\d.]*", own)
    assert figures and all(figure in english for figure in figures) and "每步" in own and untranslated == []
    assert again == english and "批次" not in english
    assert sentence.startswith("The GPU waits for data for 50%") and spoken.startswith("GPU 等待数据的时间占每步的 50%")
    assert room <= width and browser.console() == []


def test_what_the_step_is_spent_on_and_who_disturbs_the_run_are_told(browser: Browser, tmp_path: Path) -> None:
    stored = made(tmp_path / "runs", {"busy_s": 2.0, "own_s": 0.8}, {(100, 100): (0.59, 0.41)}, lines=True)

    with serving(tmp_path / "runs") as server:
        browser.driver.get(server.url)
        browser.until(lambda: "token" not in browser.driver.current_url, "the address without its token")
        browser.driver.get(f"http://127.0.0.1:{server.port}/run/{key_of(stored.path)}")
        browser.until(lambda: browser.text("#disturbed"), "the disturbed machine")
        english = browser.text("#disturbed"), browser.text("#parts")
        browser.click("#language")
        chinese, untranslated = (browser.text("#disturbed"), browser.text("#parts")), browser.run(UNTRANSLATED)
        browser.click("#language")

    assert (
        english[0].startswith("DISTURBED Other processes had 1.2 cores of 2") and "no processor free 41%" in english[1]
    )
    assert chinese[0].startswith("受干扰 其他进程") and "没有空闲处理器 41%" in chinese[1] and untranslated == []
