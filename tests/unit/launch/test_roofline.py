"""Rooflines: what is kept of them, what is made of broken files, and the measuring program as far as a CPU goes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from flatout.launch import roofline_program as program
from flatout.launch.process import BOOTSTRAP
from flatout.launch.roofline import cached_roofline, keep_roofline, measure_roofline, roofline_of
from flatout.records.roofline import PRECISIONS, Roofline

CPU = torch.device("cpu")
H200 = Roofline("NVIDIA H200", {"float32": 51.5, "bfloat16": 780.25}, 4015.5, 4.2, "measured", "2.13.0+cu130")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where measurements are kept, of this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "flatout" / "roofline"


@pytest.fixture
def kept(folder: Path) -> Path:
    """The file of a kept measurement."""
    keep_roofline(H200)
    (file,) = folder.iterdir()
    return file


# What is kept.


@pytest.mark.parametrize("launch_us", [4.2, None])
def test_what_was_kept_comes_back(launch_us: float | None) -> None:
    measured = Roofline("A/card: of (theirs)", {"float32": 5.0}, 300.0, launch_us, "measured", "2.4.0")

    keep_roofline(measured)

    assert cached_roofline(measured.device, measured.torch) == measured
    assert roofline_of(measured.device, measured.torch) == measured


def test_it_is_kept_below_the_home_where_no_other_cache_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))

    keep_roofline(H200)

    assert len(list((tmp_path / ".cache" / "flatout" / "roofline").iterdir())) == 1


def test_another_version_and_another_device_are_not_measured_yet(kept: Path) -> None:
    assert cached_roofline(H200.device, "2.14.0") is None
    assert cached_roofline("NVIDIA H200 NVL", H200.torch) is None


def test_without_a_measurement_there_is_the_data_sheet() -> None:
    sheet = roofline_of("NVIDIA H200", "2.13.0")

    assert sheet is not None and sheet.source == "data sheet"
    assert roofline_of("a card of tomorrow", "2.13.0") is None


def test_a_measurement_goes_before_the_data_sheet(kept: Path) -> None:
    assert roofline_of(H200.device, H200.torch) == H200


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"device": "NVIDIA H200"}',
    ],
)
def test_a_file_that_is_none_of_ours_counts_as_missing(kept: Path, content: bytes) -> None:
    kept.write_bytes(content)

    assert cached_roofline(H200.device, H200.torch) is None


@pytest.mark.parametrize(
    "change",
    [
        {"device": "NVIDIA H100 PCIe"},
        {"torch": "2.12.0"},
        {"source": "data sheet"},
        {"source": "hearsay"},
        {"tflops": {}},
        {"tflops": {"float32": 0}},
        {"tflops": {"float32": "51"}},
        {"memory_gb_s": -1.0},
        {"memory_gb_s": float("nan")},
        {"memory_gb_s": float("inf")},
        {"memory_gb_s": None},
        {"launch_us": 0.0},
    ],
)
def test_a_file_with_figures_that_cannot_be_counts_as_missing(kept: Path, change: dict[str, object]) -> None:
    kept.write_text(json.dumps({**json.loads(kept.read_text()), **change}))

    assert cached_roofline(H200.device, H200.torch) is None


def test_a_broken_file_is_replaced(kept: Path) -> None:
    kept.write_text("broken")

    keep_roofline(H200)

    assert cached_roofline(H200.device, H200.torch) == H200
    assert list(kept.parent.iterdir()) == [kept]


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path) -> None:
    # For root no folder is read-only; a file in its place stops everybody.
    folder.parent.mkdir(parents=True)
    folder.write_text("")

    keep_roofline(H200)

    assert cached_roofline(H200.device, H200.torch) is None


# The process that measures.


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_child_without_cuda_measures_nothing() -> None:
    assert measure_roofline(sys.executable) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_the_child_says_what_is_missing(tmp_path: Path) -> None:
    answer = tmp_path / "answer.json"

    subprocess.run([sys.executable, "-c", Path(program.__file__).read_text(), str(answer), "0"], check=True)

    assert json.loads(answer.read_text()) == {"reason": "torch sees no CUDA device"}


def _interpreter(path: Path, *lines: str) -> str:
    """One that does this instead. Its arguments are those of `python -c TEXT ANSWER DEVICE`."""
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    return str(path)


def test_the_answer_of_the_child_is_the_roofline(tmp_path: Path) -> None:
    python = _interpreter(tmp_path / "python", f'cp "{tmp_path}/H200.json" "$3"', "exit 1")
    keep_roofline(H200)
    (file,) = (tmp_path / "cache" / "flatout" / "roofline").iterdir()
    file.rename(tmp_path / "H200.json")

    assert measure_roofline(python) == H200


def test_the_child_is_not_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    python = _interpreter(tmp_path / "python", f'env > "{seen}"')
    # As in a process that flatout watches.
    monkeypatch.setenv("FLATOUT_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(BOOTSTRAP))
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    measure_roofline(python)

    names = {line.partition("=")[0] for line in seen.read_text().splitlines()}
    assert not {"FLATOUT_RUN_DIR", "CUDA_LAUNCH_BLOCKING"} & names
    assert "CUDA_VISIBLE_DEVICES" in names


def test_a_child_that_does_not_end_is_not_waited_for(tmp_path: Path) -> None:
    python = _interpreter(tmp_path / "python", "exec sleep 600")

    assert measure_roofline(python, limit_s=0.2) is None


def test_an_interpreter_that_is_none_measures_nothing(tmp_path: Path) -> None:
    assert measure_roofline(str(tmp_path / "none")) is None


# What the program computes, where it can be on a CPU.


def test_the_program_measures_the_precisions_of_the_record() -> None:
    assert set(program._DTYPES) == set(PRECISIONS)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16", "float64"])
def test_products_are_timed_and_the_setting_is_put_back(precision: str) -> None:
    before = torch.get_float32_matmul_precision()

    rate = program.product_tflops(precision, CPU, spare_bytes=1 << 30, sizes=(32, 64))

    assert rate is not None and 0 < rate < 100
    assert torch.get_float32_matmul_precision() == before


def test_a_call_takes_the_time_of_the_best_block_by_its_number_of_calls() -> None:
    calls = []

    def slow() -> None:
        calls.append(None)
        time.sleep(0.004)

    begun_s = time.perf_counter()
    taken_s = program.best_s(slow, CPU)
    whole_s = time.perf_counter() - begun_s

    # Two calls come before the blocks.
    assert 0.004 <= taken_s <= whole_s / (len(calls) - 2)


def test_a_product_that_there_is_no_room_for_is_left_out() -> None:
    assert program.product_tflops("float32", CPU, spare_bytes=1000, sizes=(32,)) is None


def test_a_precision_that_fails_is_left_out() -> None:
    assert program.product_tflops("float3", CPU, spare_bytes=1 << 30, sizes=(32,)) is None


def test_copies_and_launches_are_timed() -> None:
    assert 0 < program.copy_gb_s(CPU, 1 << 20) < 10_000
    assert 0 < program.launch_us(CPU) < 100_000
