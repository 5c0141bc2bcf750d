"""`flatout report` from the command line, on a run that was really watched."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

from tests.integration.running import ENVIRON, run

_SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
loader = DataLoader(TensorDataset(torch.randn(640, 64), torch.randn(640, 1)), batch_size=16)
model = nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def evaluate():
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            model(x)
    model.train()


for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    evaluate()
"""


def _flatout(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flatout", *words]
    return subprocess.run(command, cwd=cwd, env=ENVIRON, capture_output=True, text=True, timeout=200)


def _element(page: str, name: str) -> str:
    found = re.search(rf'id="{name}">(.*?)</', page, flags=re.DOTALL)
    assert found is not None
    return html.unescape(re.sub(r"<[^>]+>", "", found[1]))


def test_a_watched_run_becomes_a_page_that_says_what_the_terminal_says(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    watched = run("--json", "run.json", "train.py", cwd=tmp_path)
    assert watched.returncode == 0, watched.stderr
    value = json.loads((tmp_path / "run.json").read_text())

    done = _flatout("report", "last", "--lang", "zh", cwd=tmp_path)

    file = tmp_path / f"{value['run']['id']}.html"
    assert done.returncode == 0 and f"wrote {file.name}" in done.stderr, done.stderr
    page = file.read_text()
    shown = " ".join(watched.stderr.decode().split())
    assert _element(page, "sentence") == value["verdict"]["sentence"]
    assert value["verdict"]["sentence"] in shown
    assert _element(page, "next") == value["next"]
    assert "".join(value["next"].split()) in "".join(shown.split())
    data = json.loads(page[page.index('id="data">') + 10 : page.index("</script>")])
    charts = {chart["name"] for chart in data["charts"]}
    assert {"phases", "step", "cpu", "memory", "tree_cpu"} <= charts
    assert {mark[0] for mark in data["marks"]} == {"eval"}


def test_a_run_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    nothing = _flatout("report", "20990101", cwd=tmp_path)

    assert nothing.returncode == 2 and "no single run '20990101'" in nothing.stderr
    assert len(nothing.stderr.splitlines()) == 1
