from __future__ import annotations

from pathlib import Path

import pytest

from flatout.telemetry.host import HostSampler


def put(proc: Path, user: int, idle: int, iowait: int, faults: int = 0) -> None:
    (proc / "stat").write_text(
        f"cpu  {2 * user} 0 0 {2 * idle} {2 * iowait} 0 0 0 0 0\n"
        f"cpu0 {2 * user} 0 0 {idle - user} {iowait} 0 0 0 0 0\n"
        f"cpu1 0 0 0 {idle + user} {iowait} 0 0 0 0 0\nintr 5 6 7\n"
    )
    (proc / "vmstat").write_text(f"nr_free 7\npgfault {faults}\npgmajfault {faults // 10}\n")


@pytest.fixture
def proc(tmp_path) -> Path:
    (tmp_path / "meminfo").write_text(
        "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    )
    (tmp_path / "loadavg").write_text("1.50 0.9 0.5 1/99 1234\n")
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "io").write_text("some avg10=12.34 avg60=0 avg300=0 total=1\nfull avg10=1.00 avg60=0\n")
    return tmp_path


def test_shares_come_from_two_readings(proc):
    put(proc, user=100, idle=1000, iowait=0)
    now_s = [10.0]
    sampler = HostSampler(proc, clock=lambda: now_s[0])
    first = sampler.sample()
    put(proc, user=130, idle=1060, iowait=10, faults=500)
    now_s[0] = 12.0

    sample = sampler.sample()

    assert first.cpu_share is None and first.faults_per_s is None
    assert sample.cpu_share == pytest.approx(0.3)
    assert sample.iowait_share == pytest.approx(0.1)
    assert sample.busiest_core_share == pytest.approx(0.6)
    assert [core.busy_share for core in sampler.cores] == pytest.approx([0.6, 0.0])
    assert sample.faults_per_s == 250 and sample.major_faults_per_s == 25
    assert sample.memory_available_bytes == 400 * 1024 and sample.swap_used_bytes == 0
    assert sample.load_1min == 1.5 and sample.io_pressure_percent == 12.34


def test_what_the_kernel_does_not_offer_is_not_measured(tmp_path):
    sample = HostSampler(tmp_path, shm=tmp_path / "none").sample()

    assert all(getattr(sample, name) is None for name in type(sample).__slots__)


def test_this_machine_can_be_read():
    sampler = HostSampler()
    sampler.sample()

    sample = sampler.sample()

    assert sample.memory_total_bytes > sample.memory_available_bytes > 0
    assert sample.load_1min is not None
