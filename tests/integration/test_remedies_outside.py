"""Remedies around saving, collecting, evaluating and showing, on real scripts: same numbers, and files that survive."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch

from tests.integration.running import until
from tests.integration.watching import Run, Watch, environment

Script = Callable[[str], Path]
TRAIN = """
import gc, os, sys, torch
torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4))
optimizer = torch.optim.Adam(model.parameters())
for step in range(20):
    loss = model(torch.randn(16, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 6 == 0:
        gc.collect()
    print("loss", loss.item().hex())
    if step % 10 == 9:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "last.pt")
        os.replace("last.pt", f"step{step}.pt")
torch.save(model.state_dict(), "final.pt")
"""
LOSSLESS = ("checkpoint.async", "gc.defer", "autograd.plain")
SAVES = """
import itertools, torch
step = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1).step
for number in itertools.count(1):
    torch.save({"number": number, "weights": torch.full((8_000_000,), float(number))}, "last.pt")
    print(number, flush=True)
"""


def _options(*remedies: str) -> list[str]:
    return [word for remedy in remedies for word in ("--remedy", remedy)]


def _same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def test_lossless_ones_change_no_loss_and_no_checkpoint(
    watch: Watch, run_bare: Run, script: Script, tmp_path: Path
) -> None:
    path = script(TRAIN)
    bare_folder, folder = tmp_path / "bare", tmp_path / "ours"
    bare_folder.mkdir()
    folder.mkdir()

    bare = run_bare(path, cwd=bare_folder)
    seen = watch(path, cwd=folder, options=_options(*(f"{name}=true" for name in LOSSLESS)))

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses and len(bare.losses) == 20
    states = {remedy["id"]: remedy for remedy in seen.json["remedies"]}
    assert {name: states[name]["state"] for name in LOSSLESS} == dict.fromkeys(LOSSLESS, "applied")
    assert states["checkpoint.async"]["live"]["saves"] == 2
    files = sorted(bare_folder.glob("*.pt"))
    assert [file.name for file in sorted(folder.glob("*.pt"))] == [file.name for file in files]
    assert all(_same(torch.load(file), torch.load(folder / file.name)) for file in files)
    assert not list(folder.glob(".*flatout-*"))


@pytest.fixture
def saving(script: Script, tmp_path: Path) -> Iterator[Callable[[], tuple[psutil.Process, psutil.Process]]]:
    """Start a script that saves without end; gives the process that trains and the one that writes."""
    path = script(SAVES)
    started: list[subprocess.Popen[bytes]] = []

    def start() -> tuple[psutil.Process, psutil.Process]:
        command = [sys.executable, "-m", "flatout", "run", "-q", "--remedy", "checkpoint.async=true", "--", str(path)]
        parent = subprocess.Popen(command, cwd=tmp_path, env=environment({}), stdout=subprocess.DEVNULL)
        started.append(parent)
        family = psutil.Process(parent.pid)
        until(lambda: len(_writers(family)) == 1)
        (writer,) = _writers(family)
        return writer.parent(), writer

    yield start
    for parent in started:
        for process in psutil.Process(parent.pid).children(recursive=True):
            process.kill()
        parent.wait(timeout=200)


def _writers(family: psutil.Process) -> list[psutil.Process]:
    return [one for one in family.children(recursive=True) if "checkpoint/writer_process.py" in _command(one)]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""  # just gone


def _half_written(folder: Path) -> list[Path]:
    return [file for file in folder.glob(".last.pt.flatout-*") if file.stat().st_size > 0]


def _is_caught_writing(writer: psutil.Process, folder: Path) -> bool:
    writer.suspend()
    if _half_written(folder):
        return True
    writer.resume()
    return False


def _load(folder: Path) -> int:
    loaded = torch.load(folder / "last.pt")
    assert (loaded["weights"] == loaded["number"]).all()
    return int(loaded["number"])


def test_killed_in_the_midst_of_writing_a_whole_file_is_there(
    saving: Callable[[], tuple[psutil.Process, psutil.Process]], tmp_path: Path
) -> None:
    trainer, writer = saving()
    until((tmp_path / "last.pt").exists)
    until(lambda: _is_caught_writing(writer, tmp_path))

    trainer.send_signal(signal.SIGKILL)
    writer.send_signal(signal.SIGKILL)
    trainer.wait(timeout=200)

    assert _load(tmp_path) >= 1
    assert list(tmp_path.glob(".last.pt.flatout-*")), "nothing was under way"


def test_what_was_saved_before_the_training_is_killed_arrives(
    saving: Callable[[], tuple[psutil.Process, psutil.Process]], tmp_path: Path
) -> None:
    trainer, writer = saving()
    until((tmp_path / "last.pt").exists)
    trainer.suspend()
    number = _load(tmp_path)
    writer.suspend()
    under_way = len(list(tmp_path.glob(".last.pt.flatout-*")))

    trainer.send_signal(signal.SIGKILL)
    writer.resume()
    writer.wait(timeout=200)

    assert _load(tmp_path) >= number
    # What had been handed over has become the file; one that was just being made is left.
    assert len(list(tmp_path.glob(".last.pt.flatout-*"))) <= min(1, under_way)


def test_another_rank_sees_the_file_after_a_barrier(watch: Watch, script: Script, tmp_path: Path) -> None:
    path = script(
        """
import os, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for number in range(5):
    if rank == 0:
        torch.save({"number": number, "weights": torch.zeros(4_000_000)}, "shared.pt")
    dist.barrier()
    assert torch.load("shared.pt")["number"] == number
    dist.barrier()
open(f"done-{rank}", "x")  # A file each: lines that two processes print run into each other.
dist.destroy_process_group()
"""
    )

    seen = watch("torchrun", "--nproc_per_node=2", path, cwd=tmp_path, options=_options("checkpoint.async=true"))

    assert seen.returncode == 0, seen.stderr
    assert (tmp_path / "done-0").exists() and (tmp_path / "done-1").exists()


CADENCE = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
drawn, evaluated = [], []

def draw(step):
    drawn.append(step)

@torch.no_grad()
def evaluate(epoch):
    model.eval()
    for _ in range(3):
        model(torch.ones(8, 4))
    model.train()
    evaluated.append(epoch)

for epoch in range(10):
    for turn in range(5):
        optimizer.zero_grad()
        model(torch.ones(8, 4)).square().mean().backward()
        optimizer.step()
        draw(5 * epoch + turn + 1)
    evaluate(epoch)
print("DRAWN", drawn)
print("EVALUATED", evaluated)
"""


def test_a_function_of_the_script_and_its_evaluation_less_often(watch: Watch, script: Script) -> None:
    path = script(CADENCE)

    seen = watch(path, options=_options("cadence.throttle=__main__:draw=20", "cadence.eval=every=4"))

    assert seen.returncode == 0, seen.stderr
    assert seen.told("DRAWN") == [[1, 21, 41]]
    assert seen.told("EVALUATED") == [[0, 1, 5, 9]]
    states = {remedy["id"]: remedy for remedy in seen.json["remedies"]}
    assert states["cadence.throttle"]["live"] == {"throttled": "__main__:draw"}
    assert states["cadence.eval"]["live"]["keeps_last"] is True
