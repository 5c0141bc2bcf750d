"""The report of a run of a million steps: small, made and opened quickly, and its one slow step is still seen."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from flatout.launch.run_page import run_html
from tests.browser.conftest import Browser
from tests.browser.recorded import long_run

_STEPS = 1_000_000
_MOST_BYTES = 3 << 20
_MADE_S, _OPENED_S = 5.0, 1.0


@pytest.mark.timing
@pytest.mark.slow
def test_a_million_steps(browser: Browser, tmp_path: Path) -> None:
    run, slow = long_run(tmp_path, _STEPS)
    file = tmp_path / "page.html"

    # Processor time: what others do on the machine meanwhile is not ours.
    began_s = time.process_time()
    html = run_html(run.path, "en")
    made_s = time.process_time() - began_s
    file.write_text(html, encoding="utf-8")
    browser.open(file)
    opened_ms = browser.run(
        "const n = performance.getEntriesByType('navigation')[0]; return n.domContentLoadedEventEnd - n.fetchStart"
    )

    assert made_s < _MADE_S and opened_ms < 1e3 * _OPENED_S, (made_s, opened_ms)
    assert file.stat().st_size <= _MOST_BYTES
    data = json.loads(html[html.index('id="data">') + 10 : html.index("</script>")])
    curve = next(chart for chart in data["charts"] if chart["name"] == "step")
    values = curve["series"][0]["values"]
    assert max(values) == 700.0
    # Where it was: a step is 10 ms, and a bucket a thousandth of the run.
    assert curve["t_s"][values.index(700.0)] == pytest.approx(slow * 0.01, rel=0.003)
    assert f"{_STEPS:,} steps" in browser.text("#verdict")
    assert browser.console() == []
