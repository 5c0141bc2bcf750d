"""`--metrics-port` while a real script trains."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.integration.running import ENVIRON, start, until

# Trains until a file is there.
SCRIPT = """
import pathlib, time
import torch

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while not pathlib.Path("enough").exists():
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.002)
"""


def _page(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=200) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return ""


def _address(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    match = re.search(r"metrics at (http://127\.0\.0\.1:\d+/metrics)", process.stderr.readline().decode())
    assert match is not None
    return match[1]


def test_the_figures_of_a_running_script_can_be_scraped(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    with start("--out", "run", "--metrics-port", "0", "train.py", cwd=tmp_path) as process:
        try:
            address = _address(process)
            until(lambda: bool(re.search(r"^flatout_steps_total [1-9]", _page(address), re.MULTILINE)))
            until(lambda: "flatout_process_cpu_cores" in _page(address))
            page = _page(address)
        finally:
            (tmp_path / "enough").touch()
        process.communicate(timeout=200)

    assert process.returncode == 0
    assert 'run="run"' in page and 'flatout_phase_ratio{phase="backward"}' in page
    assert _page(address) == ""  # it ends with the run


def test_watch_has_them_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flatout", "watch", "--interval", "0.1", "--metrics-port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENVIRON, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            address = _address(process)
            until(lambda: "flatout_host_memory_available_bytes" in _page(address))
        finally:
            process.terminate()
