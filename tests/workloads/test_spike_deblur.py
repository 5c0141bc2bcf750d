"""spike_deblur keeps the inefficiencies it is there for, and the expert's form the numbers it claims to keep."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
import torch

from tests.workloads.projects import EXPERTS, WORKLOADS, counted, train

NAME = "spike_deblur"
PROJECT, EXPERT = WORKLOADS / NAME, EXPERTS / NAME
STEPS = 8  # an epoch has six clips here, so that runs cross from one into the next
COMMON = ("--size", "tiny", "--deterministic", "--device", "cpu")
OPTIONS = ("DATA.REPEAT=1", "TRAIN.EVAL_EVERY=4", "TRAIN.LOG_EVERY=2", "TRAIN.MEMORY_EVERY=4")


@dataclass(frozen=True, slots=True)
class Run:
    code: int
    out: str
    err: str
    losses: list[float]
    folder: Path


class Bench:
    """Runs the scripts' main() in this process, which spares the import of torch."""

    def __init__(self, folder: Path, before: ModuleType, expert: ModuleType) -> None:
        self.folder, self.before, self.expert = folder, before, expert
        self.data = folder / "data"

    def run(self, name: str, *arguments: str, script: ModuleType | None = None, data: Path | None = None) -> Run:
        folder = self.folder / name
        places = ("--data", str(data or self.data), "--out", str(folder), "--losses", str(self.folder / f"{name}.json"))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = (script or self.before).main([*COMMON, *places, *arguments])
            except SystemExit as ended:
                code = ended.code
        losses = self.folder / f"{name}.json"
        return Run(code, out.getvalue(), err.getvalue(), json.loads(losses.read_text()) if code == 0 else [], folder)

    def full(self, name: str, *options: str, steps: int = STEPS, **kwargs: Any) -> Run:
        return self.run(name, "--steps", str(steps), "--options", *OPTIONS, *options, **kwargs)


def _script(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    threads, rng, path = torch.get_num_threads(), torch.get_rng_state(), list(sys.path)
    sys.path[:0] = [str(PROJECT), str(EXPERT)]
    try:
        yield Bench(
            tmp_path_factory.mktemp(NAME),
            _script(PROJECT / "train.py", "spike_deblur_before"),
            _script(EXPERT / "train.py", "spike_deblur_expert"),
        )
    finally:
        sys.path[:] = path
        torch.set_num_threads(threads)
        torch.set_rng_state(rng)
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.deterministic = False


@pytest.fixture(scope="module")
def first(bench: Bench) -> Run:
    """One whole run, with a count of what it does to the CUDA cache."""
    emptied: list[None] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(None))
        run = bench.full("first", "TRAIN.EMPTY_CACHE_EVERY=4")
    assert len(emptied) == 2
    assert run.code == 0, run.err
    return run


# The run and its contract


def test_a_run_ends_with_its_figures_and_learns(first: Run) -> None:
    line = first.out.strip().splitlines()[-1]
    found = re.fullmatch(r"final: steps=8 loss=([\d.]+) psnr=([\d.]+) ssim=([\d.]+)", line)
    assert found, line
    assert len(first.losses) == STEPS
    assert float(found[1]) == pytest.approx(first.losses[-1], abs=1e-6)
    assert first.losses[-1] < first.losses[0]
    psnr = [float(value) for value in re.findall(r"^step \d+ psnr=([\d.]+)", first.out, re.M)]
    assert len(psnr) == 2
    assert psnr[1] > psnr[0]
    assert math.isfinite(float(found[3]))


def test_same_seed_same_losses_in_another_process_and_four_syncs_a_step(bench: Bench, first: Run) -> None:
    losses, steps = bench.folder / "counted.losses.json", 3
    places = ("--data", bench.data, "--out", bench.folder / "counted", "--losses", losses, "--steps", str(steps))
    counts = counted(NAME, bench.folder / "counted.json", *COMMON, *places, "--options", *OPTIONS)

    assert json.loads(losses.read_text()) == first.losses[:steps]
    assert counts["steps"] == steps
    # isnan, the loss and its two parts, each step: the device must have finished before any of them.
    waits = [n for line, n in counts["lines"].items() if line.startswith("_local_scalar_dense train.py:")]
    assert sum(n for n in waits if n % steps == 0) == 4 * steps
    items = [n for line, n in counts["lines"].items() if line.startswith("item train.py:")]
    assert sum(n for n in items if n % steps == 0) == 3 * steps
    assert counts["calls"]["isnan"] == steps


def test_resumed_run_ends_at_the_same_losses(bench: Bench, first: Run) -> None:
    half = bench.full("half", steps=STEPS // 2)
    rest = bench.run("rest", "--steps", str(STEPS), "--resume", str(half.folder / "last.pt"), "--options", *OPTIONS)
    assert half.losses + rest.losses == first.losses
    assert rest.out.splitlines()[-1] == first.out.splitlines()[-1]


def test_expert_lossless_has_the_same_losses_and_scores(bench: Bench, first: Run) -> None:
    run = bench.run(
        "lossless", "--steps", str(STEPS), "--allow", "lossless", "--options", *OPTIONS, script=bench.expert
    )
    assert run.losses == first.losses
    assert run.out.splitlines()[-1] == first.out.splitlines()[-1]


def test_expert_with_everything_allowed_trains_on_twice_the_clips(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deblur import attention

    monkeypatch.setattr(attention, "attend", attention.attend)  # the script replaces it; put it back afterwards
    run = bench.run("training", "--steps", "3", "--options", *OPTIONS, script=bench.expert)
    assert run.code == 0, run.err
    assert attention.attend is bench.expert.fused_attend
    assert all(math.isfinite(loss) for loss in run.losses)
    torch.backends.cuda.matmul.allow_tf32 = False


# What it contains


def test_each_worker_fills_a_cache_of_the_size_meant_for_all(first: Run) -> None:
    blocks = re.findall(
        r"\[SpikeDeblurDataset\] Cache Stats:\n  - Size: (\d+) items\n  - Memory: ([\d.]+) / ([\d.]+) MB\n"
        r"  - Hit Rate: ([\d.]+)% \((\d+) hits / (\d+) misses\)\n",
        first.out,
    )
    assert len(blocks) == 2
    used, limit = float(blocks[0][1]), float(blocks[0][2])
    assert limit < used <= 2 * limit
    assert int(blocks[-1][4]) + int(blocks[-1][5]) >= 3 * STEPS


def test_data_timer_starts_after_the_batch_arrived(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    from deblur.dataset import SpikeDeblurDataset

    load = SpikeDeblurDataset._load

    def slow(self: Any, sequence: int, frame: int) -> Any:
        time.sleep(0.05)
        return load(self, sequence, frame)

    monkeypatch.setattr(SpikeDeblurDataset, "_load", slow)
    options = ("DATALOADER.TOTAL_WORKERS=0", "DATA.USE_RAM_CACHE=false", "TRAIN.LOG_EVERY=1", "DATA.VAL_CLIPS=1")
    run = bench.run("timer", "--steps", "1", "--options", *options)
    reported = float(re.findall(r"^Avg data time: ([\d.]+)ms$", run.out, re.M)[0])
    assert reported < 150  # the batch took longer than that to come


def test_memory_lines(first: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from deblur.memory import log_memory

    line = r"^\[(.*)\] Memory - Process: [\d.]+MB \([\d.]+%\), System: [\d.]+/[\d.]+GB \([\d.]+%\)$"
    assert re.findall(line, first.out, re.M) == ["After dataset creation", "Step 4", "Step 8"]
    monkeypatch.setattr(
        psutil, "virtual_memory", lambda: type("M", (), {"total": 2**38, "used": 2**37, "percent": 91.2})
    )
    log_memory("Step 100")
    out = capsys.readouterr().out
    assert "WARNING: System memory usage is critically high (91.2%)!" in out
    assert "Consider reducing CACHE_SIZE_GB or TOTAL_WORKERS in config." in out


def test_student_learns_from_a_teacher_with_accumulation(bench: Bench, first: Run) -> None:
    student = ("--config", str(PROJECT / "configs" / "student.yaml"), "--steps", "1", "--options")
    options = ("TRAIN.GRADIENT_ACCUMULATION_STEPS=2", "DATA.VAL_CLIPS=1", "DATALOADER.TOTAL_WORKERS=0")
    alone = bench.run("alone", *student, *options)
    taught = bench.run("taught", *student, *options, f"DISTILL.TEACHER={first.folder / 'last.pt'}")
    assert len(alone.losses) == len(taught.losses) == 1
    assert taught.losses[0] > alone.losses[0]


# Data


def test_data_is_the_same_each_time_and_made_once(bench: Bench, first: Run, tmp_path: Path) -> None:
    from deblur.generate import SHAPES, frame_paths, make_data, make_frames

    root = bench.data / "tiny"
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*.dat")}
    assert make_data(bench.data, "tiny", 1) == root
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*.dat")} == before
    make_frames(tmp_path, 1, range(2, 3), SHAPES["tiny"])
    for again, once in zip(frame_paths(tmp_path, 1, 2), frame_paths(root, 1, 2), strict=True):
        assert again.read_bytes() == once.read_bytes()
    assert sorted(path.name for path in bench.data.iterdir()) == ["tiny"]


# Errors: one line, exit 2


def _said(run: Run) -> str:
    assert run.code == 2, run.out
    assert run.err.startswith("train.py: error: ")
    assert run.err.count("\n") == 1
    return run.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--steps", "0"], "must be at least 1, got 0"),
        (["--bogus"], "--bogus"),
        (["--size", "huge"], "'huge'"),
        (["--seed", "x"], "'x'"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--options", "TRAIN.BATCHSIZE=2"], "did you mean BATCH_SIZE?"),
        (["--options", "TRAIN.BATCH_SIZE=two"], "'TRAIN.BATCH_SIZE' must be a whole number, got 'two'"),
        (["--options", "TRAIN.BATCH_SIZE=0"], "must be at least 1, got 0"),
        (["--options", "TRAIN.BATCH_SIZE=99"], "TRAIN.BATCH_SIZE 99 is more than the 24 clips"),
        (["--options", "TRAIN.BATCH_SIZE"], "KEY=VALUE"),
        (["--options", "TRAIN=1"], "'TRAIN' is a section"),
        (["--options", "MODEL.VRT_DEPTHS=[1, 2]"], "needs 8 numbers"),
        (["--options", "DATA.TRAIN_CROP_SIZE=128"], "128 is larger than the frames"),
        (["--options", "DATA.CROP_SCHEDULE=[[0, 16, 1]]"], "DATA.CROP_SCHEDULE"),
        (["--options", "DATALOADER.TOTAL_WORKERS=many"], '"auto"'),
        (["--options", "DISTILL.TEACHER=nowhere.pt"], "nowhere.pt"),
        (["--resume", "nowhere.pt"], "no checkpoint nowhere.pt"),
        (["--resume", str(PROJECT / "README.md")], "is no checkpoint of this project"),
    ],
)
def test_mistakes_get_one_line(bench: Bench, arguments: list[str], said: str) -> None:
    assert said in _said(bench.run("mistake", *arguments))


def test_checkpoints_of_another_size_or_model_are_refused(bench: Bench, first: Run, tmp_path: Path) -> None:
    content = torch.load(first.folder / "last.pt", weights_only=True)
    torch.save({**content, "size": "full"}, tmp_path / "full.pt")
    assert "is of size full, this run is tiny" in _said(bench.run("size", "--resume", str(tmp_path / "full.pt")))
    deeper = ("--resume", str(first.folder / "last.pt"), "--options", "MODEL.VRT_DEPTHS=[3, 1, 1, 1, 1, 1, 1, 1]")
    assert "is of another model" in _said(bench.run("model", *deeper))
    torch.save({"weights": 1}, tmp_path / "foreign.pt")
    assert "is no checkpoint of this project" in _said(bench.run("foreign", "--resume", str(tmp_path / "foreign.pt")))


@pytest.fixture
def spoilt(bench: Bench, first: Run, tmp_path: Path) -> Callable[[str, bytes | None], Path]:
    """A copy of the data in which some files are damaged (or missing)."""
    import shutil

    def spoil(pattern: str, content: bytes | None) -> Path:
        shutil.copytree(bench.data, tmp_path / "data")
        for path in (tmp_path / "data").rglob(pattern):
            path.write_bytes(content) if content is not None else path.unlink()
        return tmp_path / "data"

    return spoil


def test_damaged_spikes_are_named_though_a_worker_read_them(spoilt: Callable[[str, bytes | None], Path]) -> None:
    data = spoilt("*.dat", b"short")
    ended = train(NAME, "--size", "tiny", "--data", data, "--out", data / "out", "--device", "cpu")
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert re.match(r"train\.py: error: spikes \S+\.dat have 5 bytes, expected 2080; delete its folder", ended.err)


@pytest.mark.parametrize(
    ("pattern", "content", "said"),
    [
        ("*.png", b"no image", "cannot read image"),
        ("*.dat", None, "No such file"),
        ("finished.json", None, "no finished"),
    ],
)
def test_damaged_and_missing_files_get_one_line(
    bench: Bench, spoilt: Callable[[str, bytes | None], Path], pattern: str, content: bytes | None, said: str
) -> None:
    alone = ("--options", "DATALOADER.TOTAL_WORKERS=0")
    assert said in _said(bench.run("damaged", *alone, data=spoilt(pattern, content)))
