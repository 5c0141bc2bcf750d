"""NVML against reality: a child that keeps a real GPU busy must be seen as busy, in its own memory, under its UUID."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from flatout.records.sample import GpuSample, Tick
from flatout.telemetry.sampling import Sampling, SamplingOptions, rows

pytestmark = pytest.mark.gpu

MATMUL = """
import sys, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
print(torch.cuda.get_device_properties(0).uuid, flush=True)
torch.cuda.synchronize()
while True:
    for _ in range(50):
        b = a @ a
    torch.cuda.synchronize()
"""


@pytest.fixture(scope="module")
def busy() -> Iterator[tuple[int, str]]:
    """A child in a matmul loop: its pid and the UUID torch reports."""
    child = subprocess.Popen([sys.executable, "-c", MATMUL], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    uuid = child.stdout.readline().strip()
    yield child.pid, uuid
    child.kill()
    child.communicate()


def until(condition: Callable[[], bool], deadline_s: float = 60.0) -> None:
    end_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end_s, "not within the deadline"
        time.sleep(0.05)


def sampled(pid: int, count: int = 15) -> tuple[list[Tick], Sampling]:
    ticks: list[Tick] = []
    with Sampling(pid, 0.2, ticks.append) as sampling:
        until(lambda: sum(bool(tick.gpu and tick.gpu.gpus and tick.gpu.fresh) for tick in ticks) >= count)
    return ticks, sampling


def gpu_samples(ticks: list[Tick]) -> list[GpuSample]:
    return [tick.gpu.gpus[0] for tick in ticks if tick.gpu and tick.gpu.gpus and tick.gpu.fresh]


def test_a_busy_gpu_is_seen_as_busy(busy: tuple[int, str]) -> None:
    ticks, sampling = sampled(busy[0])

    last = gpu_samples(ticks)[-1]
    print(last, sampling.cpu_ms_per_tick, sampling.notices, sampling.gpu_facts, sampling.driver)
    assert last.util_percent is not None and last.util_percent > 50
    assert last.power_w is not None and last.power_limit_w is not None
    assert 0.3 < last.power_w / last.power_limit_w < 1.2
    assert last.temperature_c is not None and 20 < last.temperature_c < 100
    assert last.sm_clock_mhz is not None and last.sm_clock_mhz > 300
    assert last.memory_total_bytes is not None
    assert abs(last.memory_total_bytes / torch.cuda.get_device_properties(0).total_memory - 1) < 0.1
    assert sampling.driver


def test_gpm_shows_active_sms_and_tensor_cores(busy: tuple[int, str]) -> None:
    if torch.cuda.get_device_capability(0) < (9, 0):
        pytest.skip("GPM needs Hopper or newer")
    ticks, _ = sampled(busy[0])

    last = gpu_samples(ticks)[-1]
    assert last.sm_active_share is not None and 0.5 < last.sm_active_share <= 1.0
    assert last.tensor_active_share is not None and last.tensor_active_share > 0.2
    assert last.dram_active_share is not None and 0 <= last.dram_active_share <= 1
    assert last.pcie_rx_bytes_per_s is not None


def test_own_memory_is_the_childs(busy: tuple[int, str]) -> None:
    own = gpu_samples(sampled(busy[0])[0])[-1].own_memory_bytes
    others = gpu_samples(sampled(os.getpid() if torch.cuda.is_initialized() else os.getppid(), 3)[0])

    assert own is None or own > 1 << 30, "None only where NVML shows process ids of another namespace"
    assert others, "a process without GPU work is watched all the same"


def test_another_process_on_the_gpu_is_counted(busy: tuple[int, str]) -> None:
    torch.empty(1 << 20, device="cuda")
    own = gpu_samples(sampled(busy[0])[0])[-1]

    assert own.own_memory_bytes is None or own.other_processes == 1.0, "this one"


def test_the_uuid_is_torchs(busy: tuple[int, str]) -> None:
    _, sampling = sampled(busy[0], 1)

    assert sampling.gpu_facts[0].uuid.removeprefix("GPU-") == busy[1].removeprefix("GPU-")


def test_the_setting_by_uuid_and_the_empty_setting(busy: tuple[int, str]) -> None:
    for setting, count in ((f"GPU-{busy[1].removeprefix('GPU-')[:8]}", 1), ("", 0)):
        ticks: list[Tick] = []
        with Sampling(busy[0], 0.1, ticks.append, SamplingOptions(visible=setting)):
            until(lambda ticks=ticks: any(tick.gpu and tick.gpu.fresh for tick in ticks))  # type: ignore[misc]
        # The last tick of all is of the memory limit alone.
        *_, last = (tick.gpu for tick in ticks if tick.gpu is not None)
        assert len(last.facts) == count


def test_a_tick_stays_cheap(busy: tuple[int, str]) -> None:
    ticks, sampling = sampled(busy[0], 20)

    assert sampling.cpu_ms_per_tick is not None and sampling.cpu_ms_per_tick < 20
    *_, last = (tick for tick in ticks if tick.gpu is not None)
    assert len(rows(last).get("processes", [])) >= 1


def test_watch_gives_a_verdict_on_the_card(busy: tuple[int, str], tmp_path: Path) -> None:
    csv = tmp_path / "gpu.csv"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-m", "flatout", "watch", "--interval", "0.5", "--duration", "5"]

    done = subprocess.run(
        [*command, "--pid", str(busy[0]), "--csv", str(csv)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=200,
    )

    print(done.stdout, csv.read_text()[:1500])
    assert done.returncode == 0 and "on target" in done.stdout
    assert "[N/A]" not in csv.read_text().splitlines()[-1].split(", ")[1:5]
