"""A real browser: Debian's chromium, driven by its own chromedriver. Where one of them is missing, the tests say so."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_WAIT_S = 15.0
# What a Chinese page says in English though it is neither code nor marked as words of the run itself.
UNTRANSLATED = """
const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
const found = [];
while (walker.nextNode()) {
  const { parentElement: parent, data } = walker.currentNode;
  if (parent.closest('[lang="en"], code, pre, svg, script, .command, #command') || !parent.checkVisibility()) continue;
  if (/[A-Za-z]{2,} [a-z]{2,} [a-z]{2,}/.test(data)) found.push(data.trim());
}
return found;
"""


class Browser:
    """What the tests ask of a browser. Every test gets a fresh page in the same process."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, file: Path, *, width: int = 1200, dark: bool = False) -> None:
        """Load a page from disk, of this width, on a system that prefers light or dark."""
        self._cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.media("screen", dark=dark)
        self.driver.get("about:blank")
        self.console()
        self.requests()
        self.driver.get(file.resolve().as_uri())

    def media(self, kind: str, *, dark: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._cdp("Emulation.setEmulatedMedia", media=kind, features=[scheme])

    def run(self, script: str, *values: Any) -> Any:
        """What the script returns; it runs in the page."""
        return self.driver.execute_script(script, *values)

    def click(self, selector: str) -> None:
        self.driver.find_element("css selector", selector).click()

    def text(self, selector: str = "body") -> str:
        """What a reader sees: hidden parts are not in it."""
        return str(self.run("return document.querySelector(arguments[0]).innerText.trim()", selector))

    def until(self, is_so: Callable[[], Any], what: str) -> Any:
        """Poll until it is so."""
        deadline_s = time.monotonic() + _WAIT_S
        while not (found := is_so()):
            assert time.monotonic() < deadline_s, f"waited in vain for: {what}"
            time.sleep(0.02)
        return found

    def console(self) -> list[str]:
        """Warnings and errors since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """Every address that was asked for since the last call, by whatever in the page."""
        messages = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]

    def pdf(self) -> str:
        """The printed page, as base64."""
        return str(self._cdp("Page.printToPDF", printBackground=True)["data"])

    def drag(self, selector: str, start: float, end: float) -> None:
        """Press at `start` of the element's width and let go at `end`."""
        from selenium.webdriver import ActionChains

        element = self.driver.find_element("css selector", selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        width = element.size["width"]
        actions = ActionChains(self.driver, duration=20)
        actions.move_to_element_with_offset(element, int((start - 0.5) * width), 0).click_and_hold()
        actions.move_by_offset(int((end - start) * width / 2), 0).move_by_offset(int((end - start) * width / 2), 0)
        actions.release().perform()

    def double_click(self, selector: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver, duration=20).double_click(
            self.driver.find_element("css selector", selector)
        ).perform()

    def _cdp(self, command: str, **values: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, values)


@pytest.fixture(scope="session")
def browser_process() -> Iterator[Browser]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install selenium")
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("chromium is not installed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    # The sandbox wants rights that a container does not have; /dev/shm is small there.
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


@pytest.fixture
def browser(browser_process: Browser) -> Browser:
    return browser_process
