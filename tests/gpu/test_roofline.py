"""The roofline of a real card: in what range its figures are, and that they are measured once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flatout.launch.roofline import cached_roofline, keep_roofline, measure_roofline
from flatout.model.data_sheets import data_sheet
from flatout.records.roofline import Roofline

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def measured() -> Roofline:
    roofline = measure_roofline(sys.executable)
    assert roofline is not None
    print(roofline)
    return roofline


def test_it_is_of_this_device_and_this_torch(measured: Roofline) -> None:
    assert (measured.device, measured.torch) == (torch.cuda.get_device_name(0), str(torch.__version__))
    assert measured.source == "measured" and {"float32", "float16"} <= set(measured.tflops)


def test_an_h200_does_what_an_h200_does(measured: Roofline) -> None:
    if measured.device != "NVIDIA H200":
        pytest.skip("these figures are of an H200")

    assert 500 < measured.tflops["bfloat16"] < 1000
    assert 30 < measured.tflops["float32"] < 67
    assert 3000 < measured.memory_gb_s < 4800
    assert measured.launch_us is not None and 1 < measured.launch_us < 30


def test_no_figure_is_above_the_data_sheet(measured: Roofline) -> None:
    sheet = data_sheet(measured.device)
    if sheet is None:
        pytest.skip("no data sheet of this card")

    shares = {name: measured.tflops[name] / peak for name, peak in sheet.tflops.items() if name in measured.tflops}
    # Cards run above the clock that their sheet is of, by some percent, as long as they are cool.
    assert all(0.3 < share < 1.1 for share in shares.values()), shares
    assert 0.5 < measured.memory_gb_s / sheet.memory_gb_s < 1.0


def test_it_is_kept(measured: Roofline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    keep_roofline(measured)

    assert cached_roofline(measured.device, measured.torch) == measured


def test_the_doctor_measures_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    first = _doctor(tmp_path)
    (file,) = (tmp_path / "cache" / "flatout" / "roofline").iterdir()
    written_ns = file.stat().st_mtime_ns
    second = _doctor(tmp_path)

    assert first == second and "TFLOP/s" in first
    assert file.stat().st_mtime_ns == written_ns


def _doctor(cwd: Path) -> str:
    """The value of its line."""
    done = subprocess.run(
        [sys.executable, "-m", "flatout", "doctor", "--json", "-"],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        timeout=290,
    )
    (line,) = (check for check in json.loads(done.stdout)["checks"] if check["name"] == "roofline")
    assert line["state"] == "ok", line
    return str(line["value"])
