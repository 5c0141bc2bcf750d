"""A run beside processes that take its core: said first, with who and how much."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatout.store.run import StoredRun

pytestmark = pytest.mark.durations

_TRAIN = textwrap.dedent("""
    import time, torch
    torch.set_num_threads(1)
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, until_s = torch.randn(64, 256), None
    while until_s is None or time.monotonic() < until_s:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        until_s = until_s or time.monotonic() + 8.0
""")
_HOG = "import sys\nsys.stdout.write('.')\nsys.stdout.flush()\nwhile True: pass"


@pytest.fixture
def hogs() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes that compute without end on the first core that we have, as does the training."""
    core = str(min(os.sched_getaffinity(0)))
    argv = ["taskset", "-c", core, sys.executable, "-c", _HOG]
    started = [subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for hog in started:
            assert hog.stdout is not None and hog.stdout.read(1) == b"."
        yield started
    finally:
        for hog in started:
            hog.kill()
            hog.wait()
            assert hog.stdout is not None
            hog.stdout.close()


def test_a_run_beside_others_on_its_core_names_them_first(hogs, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_TRAIN)
    core = str(min(os.sched_getaffinity(0)))
    argv = ["taskset", "-c", core, sys.executable, "-m", "flatout", "run", "--json", "report.json", str(script)]

    ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert ended.returncode == 0, ended.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    machine = report["machine"]
    assert machine["cores"] == 1.0 and machine["disturbed"] and not report["verdict"]["healthy"]
    # Three that compute all the time have a third each, whatever else there is on the core.
    assert machine["training"]["share"] > 0.4 and machine["training"]["by_others"] > 0.4
    assert machine["training"]["share"] == pytest.approx(1 - machine["own_cores"], abs=0.15)
    assert machine["delay_ms"] > 0
    # Others may be busy here as well: the busiest are named, and the two are among those that were seen.
    seen = StoredRun(next((tmp_path / ".flatout" / "runs").iterdir())).rows("neighbours")
    assert seen is not None and {hog.pid for hog in hogs} <= set(seen.column("pid").astype(int).tolist())
    said = " ".join(ended.stderr.split())
    assert "DISTURBED" in said and said.index("DISTURBED") < said.index("BOUND"), "before the verdict"
    assert f"pid {machine['neighbours'][0]['pid']}" in said
