"""The figures for Prometheus: their format, and who gets them."""

from __future__ import annotations

import http.client
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from flatout.errors import FlatoutError
from flatout.launch.metrics_server import MetricsServer
from flatout.records.sample import CgroupSample, GpuFacts, GpuReading, GpuSample, HostSample, ProcessSample, Tick
from flatout.report.live import LiveFigures
from flatout.report.prometheus import exposition
from tests.unit.making import Making

TICK = Tick(
    1.0,
    gpu=GpuReading(
        1.0,
        (GpuSample(0, util_percent=50.0, power_w=300.5), GpuSample(1, util_percent=float("nan"))),
        (GpuFacts(0, 0, "GPU-1", 'an "odd\\name"\n', False),),
    ),
    host=HostSample(cpu_share=0.25, memory_available_bytes=1e9),
    processes=(
        ProcessSample(1, "main", 1.0, 100.0),
        ProcessSample(2, "worker", 0.5, 10.0),
        ProcessSample(3, "worker", None, 20.0),
    ),
    cgroup=CgroupSample(memory_current_bytes=7.0),
)
FIGURES = LiveFigures(12.5, 100, 10.0, None, {"data": 0.75, "forward": 0.25})
LINE = re.compile(
    r'([a-z_]+)(\{[a-z]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z]+="(?:[^"\\\n]|\\["\\n])*")*\})? (-?[0-9.e+-]+)'
)


def _values(text: str) -> dict[str, float]:
    """Every line by its name and labels; fails on one that is not of the format."""
    found, typed = {}, set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        if line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        assert match is not None, line
        assert match[1] in typed, f"{line} comes before its type"
        assert match[1] + (match[2] or "") not in found
        found[match[1] + (match[2] or "")] = float(match[3])
    return found


def test_every_figure_is_there_once_in_base_units() -> None:
    values = _values(exposition(FIGURES, TICK, {"version": "1.0"}))

    assert values["flatout_steps_total"] == 100
    assert values["flatout_steps_per_second"] == 10
    assert values['flatout_phase_ratio{phase="data"}'] == 0.75
    assert values['flatout_gpu_utilization_ratio{gpu="0",name="an \\"odd\\\\name\\"\\n"}'] == 0.5
    assert values['flatout_processes{role="worker"}'] == 2
    assert values['flatout_process_cpu_cores{role="worker"}'] == 0.5
    assert values['flatout_process_resident_memory_bytes{role="worker"}'] == 30
    assert values["flatout_cgroup_memory_bytes"] == 7


def test_what_is_not_measured_has_no_line() -> None:
    text = exposition(FIGURES, TICK, {})

    assert "samples_per_second" not in text
    assert "memory_limit" not in text
    assert 'gpu="1"' not in text
    assert "nan" not in text.lower()
    assert _values(exposition(None, None, {"version": "1"})) == {'flatout_info{version="1"}': 1.0}


@pytest.fixture
def exposed(tmp_path: Path) -> Iterator[MetricsServer]:
    making = Making(tmp_path)
    process = making.process()
    process.steps(30, 10.0, {"data": 0.5})
    process.end()
    one = MetricsServer(0)
    one.start("a run", making.stored().path / "proc")
    one.on_tick(TICK)
    one.on_tick(Tick(2.0, host=HostSample(cpu_share=0.5)))
    yield one
    one.close()


def _ask(
    exposed: MetricsServer, method: str = "GET", path: str = "/metrics", host: str | None = None
) -> tuple[int, str]:
    address = urlsplit(exposed.address)
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=200)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_the_figures_of_a_run_are_served(exposed: MetricsServer) -> None:
    status, text = _ask(exposed)

    values = _values(text)
    assert status == 200
    assert values["flatout_steps_total"] == 30
    assert values["flatout_samples_per_second"] == pytest.approx(3200)
    assert values["flatout_host_cpu_ratio"] == 0.5
    assert values['flatout_processes{role="main"}'] == 1  # of the tick before
    assert 'run="a run"' in text


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:9400"}, 403),
        ({"host": ""}, 403),
        ({"host": "localhost"}, 200),
        ({"host": "[::1]:9400"}, 200),
        ({"path": "/"}, 404),
        ({"path": "/metrics/../etc/passwd"}, 404),
        ({"path": "/metrics?x=1"}, 200),
        ({"method": "HEAD"}, 200),
        ({"method": "POST"}, 501),
        ({"method": "DELETE"}, 501),
    ],
)
def test_only_this_machine_and_only_this_page(exposed: MetricsServer, asked: dict[str, str], status: int) -> None:
    assert _ask(exposed, **asked)[0] == status


def test_clients_that_went_away_without_a_word_do_not_keep_others_out(exposed: MetricsServer) -> None:
    port = urlsplit(exposed.address).port
    assert port is not None
    for one in [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]:
        one.close()

    deadline = time.monotonic() + 20.0
    answered = False
    while not answered and time.monotonic() < deadline:
        # Those who come while all places are taken are turned away.
        with suppress(http.client.HTTPException, OSError):
            answered = _ask(exposed)[0] == 200
    assert answered


def test_it_listens_on_this_machine_alone_and_a_port_that_is_taken_is_one_line(exposed: MetricsServer) -> None:
    port = urlsplit(exposed.address).port
    assert port is not None and exposed.address.startswith("http://127.0.0.1:")

    with pytest.raises(FlatoutError, match=f"--metrics-port {port}: cannot listen there"):
        MetricsServer(port)
    with pytest.raises(FlatoutError, match="--metrics-port must be"):
        MetricsServer(70_000)
