from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace

import pytest

from flatout.telemetry import processes
from flatout.telemetry.processes import ProcessSampler, parse_stat

SCRIPT = textwrap.dedent("""
    import multiprocessing as mp, sys, time

    if __name__ == "__main__":
        # Daemons that share no lock with us: one of them is killed, and a lock would die with it.
        workers = [mp.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True) for _ in range(2)]
        [worker.start() for worker in workers]
        print("ready", flush=True)
        while line := sys.stdin.readline():
            if line == "burn\\n":
                sum(range(30_000_000))
            elif line == "grow\\n":
                held = b"x" * 200_000_000
            elif line == "kill\\n":
                workers[0].kill()
                workers[0].join()
            print("done", flush=True)
""")


@pytest.fixture
def child(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    yield process
    process.stdin.close()
    process.wait(200)
    process.stdout.close()


def ask(child, what: str) -> str:
    child.stdin.write(what + "\n")
    child.stdin.flush()
    return child.stdout.readline()


def test_the_tree_is_found_with_its_roles(child):
    samples = ProcessSampler(child.pid).sample()

    assert sorted(sample.role for sample in samples) == ["main", "worker", "worker"]
    main = next(sample for sample in samples if sample.role == "main")
    assert main.pid == child.pid and main.rss_bytes > 1e6 and main.threads == 1
    assert main.cpu_share is None, "one reading gives no rate"


def test_cpu_share_is_of_one_core(child):
    sampler = ProcessSampler(child.pid)
    sampler.sample()
    before_s = time.perf_counter()
    ask(child, "burn")
    took_s = time.perf_counter() - before_s

    by_role = {sample.role: sample for sample in sampler.sample()}

    assert took_s > 0.05
    assert 0.1 < by_role["main"].cpu_share < 1.3
    assert by_role["worker"].cpu_share < 0.1


def test_a_vanished_worker_leaves_the_tree(child):
    sampler = ProcessSampler(child.pid)
    assert len(sampler.sample()) == 3
    ask(child, "kill")

    assert len(sampler.sample()) == 2
    assert len(sampler.pids) == 2


def test_pss_is_read_for_one_process_a_turn(child):
    now_s = [0.0]
    sampler = ProcessSampler(child.pid, clock=lambda: now_s[0])
    known = []
    for _ in range(3):
        known.append(sum(sample.pss_bytes is not None for sample in sampler.sample()))
        now_s[0] += 4.0

    assert known[0] == 1 and known[-1] == 3


def test_pss_follows_what_a_process_takes_within_seconds(child, monkeypatch):
    now_s = [0.0]
    sampler = ProcessSampler(child.pid, clock=lambda: now_s[0])
    # A reading takes no time, however busy the machine is: what it may cost is another test.
    monkeypatch.setattr(processes, "time", SimpleNamespace(thread_time=lambda: 0.0))

    def pss_of_main() -> float | None:
        now_s[0] += 0.2
        return next(sample.pss_bytes for sample in sampler.sample() if sample.role == "main")

    before = [pss_of_main() for _ in range(10)][-1]
    ask(child, "grow")
    # The clock stands at 2 s: its turn by the beat alone would come after 5.
    after = [pss_of_main() for _ in range(10)][-1]

    assert before is not None and after is not None and 190e6 < after - before < 210e6


def test_pss_takes_no_more_than_its_share_of_the_time(child, monkeypatch):
    reads: list[float] = []
    now_s = [0.0]
    sampler = ProcessSampler(child.pid, clock=lambda: now_s[0])
    monkeypatch.setattr(processes, "time", SimpleNamespace(thread_time=lambda: now_s[0]))
    monkeypatch.setattr(processes._Process, "wants_pss", lambda process, at_s: True)

    def reading(process: object, at_s: float) -> None:
        reads.append(at_s)
        now_s[0] += 0.010

    monkeypatch.setattr(processes._Process, "read_pss", reading)
    while now_s[0] < 10.0:
        sampler.sample()
        now_s[0] += 0.2

    # 10 ms each, of 10 s.
    assert 3 <= len(reads) <= 1 + 10 * processes._PSS_TIME_SHARE / 0.010 <= 11


def test_an_unknown_root_gives_nothing():
    assert ProcessSampler(2**22 + 1).sample() == ()


def test_forbidden_files_leave_only_their_figures_out(tmp_path):
    """Another user's process: stat may be read, io and smaps_rollup may not."""
    folder = tmp_path / "42"
    folder.mkdir()
    (folder / "stat").write_text(f"42 (a (b) c) S 1 {'7 ' * 40}")
    (folder / "cmdline").write_bytes(b"python\0x.py\0")

    (sample,) = ProcessSampler(42, proc=tmp_path).sample()

    assert sample.rss_bytes == 7 * os.sysconf("SC_PAGE_SIZE") and sample.threads == 7
    assert sample.read_bytes_per_s is None and sample.pss_bytes is None


def test_zombies_and_rubbish_are_no_processes():
    assert parse_stat(b"42 (x) Z 1 " + b"0 " * 40) is None
    assert parse_stat(b"") is None
