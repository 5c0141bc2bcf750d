"""Whatever a recording holds or lacks, there is a page of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flatout.attach import wire
from flatout.launch.run_page import run_html
from tests.unit.making import MS, UNKNOWN, Making, body

_KEYS = ("t_s", "pid", "gpu", "role", "major", "minor")
_COLUMNS = {
    "gpu": ("t_s", "gpu", "util_percent", "power_w", "power_limit_w", "own_memory_bytes", "memory_total_bytes"),
    "host": ("t_s", "cpu_share", "memory_available_bytes", "memory_total_bytes"),
    "processes": ("t_s", "pid", "role", "cpu_share", "rss_bytes", "pss_bytes", "threads"),
    "disks": ("t_s", "major", "minor", "read_bytes_per_s"),
    "cgroup": ("t_s", "memory_limit_bytes", "memory_current_bytes", "memory_cache_bytes"),
    "network": ("t_s", "read_bytes_per_s"),
    "shared": ("t_s", "cores", "busy_s", "steal_s", "own_s"),
    "threads": ("t_s", "pid", "tid", "run_s", "delay_s"),
    "neighbours": ("t_s", "pid", "cores", "span_s"),
}


@pytest.mark.parametrize("seed", range(12))
def test_any_recording_has_a_page(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    making = Making(tmp_path)
    for rank in range(chance.choice((0, 1, 1, 2))):
        _process(making, rank, chance)
    for source, names in _COLUMNS.items():
        if chance.random() < 0.6:
            kept = [name for name in names if name in _KEYS or chance.random() < 0.8]
            count = chance.choice((0, 1, 2, 60))
            making.rows(source, kept, [[_value(name, n, chance) for name in kept] for n in range(count)])
    stored = making.stored(exit_code=chance.choice((0, 1, None)), wall_s=chance.choice((None, 5.0)))

    html = run_html(stored.path, "en")

    assert html.rstrip().endswith("</html>") and "nan" not in html[html.index("<main>") : html.index("</main>")].split()


def _process(making: Making, rank: int, chance: random.Random) -> None:
    process = making.process(pid=100 + rank, rank=rank)
    for _ in range(chance.choice((0, 1, 2, 40))):
        phases = {"data": chance.random() / 2} if chance.random() < 0.8 else {}
        more = {
            "queue": chance.choice((-1, 0, 3)),
            "samples": chance.choice((32, UNKNOWN)),
            "steps": chance.choice((1, 5)),
        }
        process.step(chance.choice((0, 0.001, 1, 10, 1e4)), phases, **more)
        times = [chance.choice((float("nan"), 0.0, 5.0)) for _ in range(6)]
        process.append(body("device", process.index, *times, 4, 1))
        if chance.random() < 0.1:
            process.append(body("span", chance.choice((wire.EVAL, wire.GC)), process.now_ns, process.now_ns + MS, -1))
    process.end(exited=chance.random() < 0.7)


def _value(name: str, n: int, chance: random.Random) -> float | None:
    if name == "t_s":
        return 5.0 + 0.5 * n
    if name == "power_limit_w":
        return 700.0
    return chance.choice((0, 1, 2)) if name in _KEYS else chance.choice((None, 0, 1, 1e9))
