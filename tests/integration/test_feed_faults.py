"""What the loader survives: killed and stopped workers, a killed parent, Ctrl-C. Real signals, real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset

from flatout.feed.feeding import why_no_workers
from flatout.feed.iterator import FeedIterator
from flatout.feed.loader import DataLoader
from flatout.words import english

ENVIRON = {k: v for k, v in os.environ.items() if not k.startswith("FLATOUT_")}
SCRIPT = """
import os, sys, time, torch
from flatout.feed.loader import DataLoader

class Slow:
    def __len__(self): return 100000
    def __getitem__(self, index):
        time.sleep(float(os.environ["SAMPLE_S"]))
        return torch.tensor(index)

if __name__ == "__main__":
    loader = DataLoader(Slow(), batch_size=4, num_workers=2, multiprocessing_context=os.environ.get("METHOD"))
    batches = iter(loader)
    next(batches)
    print(*[worker.pid for worker in batches._workers], flush=True)
    {then}
"""


class Pids:
    """Each sample says which process loaded it."""

    def __len__(self) -> int:
        return 240

    def __getitem__(self, index: int) -> tuple[int, int]:
        time.sleep(0.002)
        return index, os.getpid()


class Deadly:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        if index == 23:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


class DeadlyOnce(Deadly):
    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __getitem__(self, index: int) -> int:
        if index == 23 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index


class Failing(Deadly):
    def __getitem__(self, index: int) -> int:
        if index == 9:
            raise LookupError(f"no sample {index}")
        return index


@pytest.fixture(autouse=True)
def no_children_before() -> Iterator[None]:
    # multiprocessing's helpers of earlier tests stay; workers do not.
    global _earlier
    _earlier = set()
    _earlier = children()
    yield


_earlier: set[int] = set()


def children() -> set[int]:
    found = psutil.Process().children(recursive=True)
    return {child.pid for child in found if child.status() != psutil.STATUS_ZOMBIE and not _is_helper(child)} - _earlier


def _is_helper(process: psutil.Process) -> bool:
    return "resource_tracker" in " ".join(process.cmdline())


def start(tmp_path: Path, then: str, sample_s: float = 0.01, **more: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A script that iterates; its process and its workers' process ids."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("{then}", then))
    environ = {**ENVIRON, "SAMPLE_S": str(sample_s), **more}
    process = subprocess.Popen([sys.executable, str(script)], env=environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as said:
        return process, [int(word) for word in said.readline().split()]


def gone_within(pids: list[int], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN, lambda *_: None])
def test_a_killed_worker_is_replaced_and_no_sample_is_lost(handler: Any) -> None:
    before = signal.signal(signal.SIGCHLD, handler)
    try:
        loader = DataLoader(Pids(), batch_size=4, num_workers=2)
        batches, seen = iter(loader), []
        with pytest.warns(RuntimeWarning, match=r"worker \d \(pid \d+\) (was ended by SIGKILL|ended)"):
            for number, (indices, _) in enumerate(batches):
                seen += indices.tolist()
                if number == 10:
                    os.kill(batches._workers[0].pid, signal.SIGKILL)
    finally:
        signal.signal(signal.SIGCHLD, before)

    assert seen == list(range(240))


def test_many_kills_at_any_moment_change_nothing() -> None:
    loader = DataLoader(Pids(), batch_size=8, num_workers=3, restarts=1000, prefetch_factor=3)
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batches = iter(loader)
        for number, (indices, _) in enumerate(batches):
            seen += indices.tolist()
            if number % 6 == 1:
                time.sleep(0.001 * (number % 7))  # another moment of its work each time
                os.kill(batches._workers[number % 2].pid, signal.SIGKILL)

    assert seen == list(range(240))
    del batches
    assert not children()


def test_a_sample_that_kills_once_is_loaded_again(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="while it loaded sample.*23"):
        seen = [i for batch in DataLoader(DeadlyOnce(tmp_path / "flag"), batch_size=4, num_workers=2) for i in batch]

    assert [int(i) for i in seen] == list(range(40))


@pytest.mark.durations
def test_a_sample_that_kills_again_is_named_within_a_second() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.monotonic()
        with pytest.raises(RuntimeError, match=r"DataLoader worker \d \(pid \d+\) .*SIGKILL.* sample 23") as error:
            list(DataLoader(Deadly(), batch_size=4, num_workers=2))
        took_s = time.monotonic() - began

    assert "second time" in str(error.value)
    assert took_s < 3.0  # two workers started for it, and each death seen at once
    assert not children()


@pytest.mark.durations
def test_restarts_are_bounded() -> None:
    batches = iter(DataLoader(Pids(), batch_size=4, num_workers=2, restarts=0))
    next(batches)
    os.kill(batches._workers[1].pid, signal.SIGKILL)
    began = time.monotonic()

    with pytest.raises(RuntimeError, match="SIGKILL"):
        list(batches)

    assert time.monotonic() - began < 3.0
    assert not children()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_in_a_worker_comes_as_torchs_does_and_the_next_batch_after_it(workers: int) -> None:
    def outcomes(kind: Any) -> list[Any]:
        batches, seen = iter(kind(Failing(), batch_size=4, num_workers=workers)), []
        while True:
            try:
                seen.append(next(batches).tolist())
            except LookupError as error:
                assert "Traceback" in str(error) and "in DataLoader worker process" in str(error)
                seen.append(str(error).splitlines()[-1])
            except StopIteration:
                return seen

    assert outcomes(DataLoader) == outcomes(TorchLoader)


def test_a_worker_that_is_stopped_does_not_keep_the_process_from_ending(tmp_path: Path) -> None:
    process, pids = start(tmp_path, "import signal; os.kill(batches._workers[0].pid, signal.SIGSTOP)")

    assert process.wait(200) == 0
    assert gone_within(pids, 30.0)


@pytest.mark.parametrize("method", ["fork", pytest.param("forkserver", marks=pytest.mark.variant)])
def test_workers_go_when_their_parent_is_killed(tmp_path: Path, method: str) -> None:
    process, pids = start(tmp_path, "time.sleep(60)", METHOD=method)
    process.kill()
    process.wait()

    assert gone_within(pids, 60.0)


def test_a_worker_in_the_middle_of_a_long_sample_goes_as_well(tmp_path: Path) -> None:
    process, pids = start(tmp_path, "os.environ['SAMPLE_S'] = '100'; time.sleep(60)", sample_s=1.0)
    process.kill()
    process.wait()

    assert gone_within(pids, 60.0)


def test_nothing_is_left_after_ctrl_c(tmp_path: Path) -> None:
    process, pids = start(tmp_path, "[None for _ in batches]")
    process.send_signal(signal.SIGINT)

    assert process.wait(200) in (-signal.SIGINT, 1)
    assert gone_within(pids, 60.0)


def test_workers_that_are_leaving_when_an_epoch_begins_are_told_so_once() -> None:
    loader = DataLoader(Pids(), batch_size=4, num_workers=3, persistent_workers=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for _ in range(3):
            loader.resize(3)
            batches = iter(loader)
            next(batches)
            loader.resize(1)
            time.sleep(0.3)  # two go home, and nobody looks
        rest = list(loader)

    assert [int(index) for indices, _ in rest for index in indices] == list(range(240))


def test_leaving_a_loop_ends_its_workers() -> None:
    for _ in DataLoader(Pids(), batch_size=4, num_workers=2):
        break

    deadline = time.monotonic() + 5.0
    while children() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not children()


def test_a_child_of_the_script_does_not_end_its_parents_workers() -> None:
    batches = iter(DataLoader(Pids(), batch_size=4, num_workers=2))
    next(batches)
    pid = os.fork()
    if pid == 0:
        del batches
        os._exit(0)
    os.waitpid(pid, 0)

    assert sum(len(indices) for indices, _ in batches) == 236


def test_what_cannot_be_sent_to_spawned_workers_is_refused_with_the_reason() -> None:
    local = type("Local", (), {"__len__": lambda self: 4, "__getitem__": lambda self, i: i})()

    with pytest.raises(TypeError, match=r"cannot be started by 'spawn'.*top level of a module"):
        iter(DataLoader(local, num_workers=1, multiprocessing_context="spawn"))

    why = why_no_workers(local, None, None, "spawn")
    assert why is not None and "dataset cannot be sent" in english(why)
    assert why_no_workers(local, None, None, "fork") is None
    assert not children()


def test_an_unguarded_script_is_refused_beforehand(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from flatout.feed.feeding import why_no_workers\n"
        "from flatout.words import english\n"
        "print(english(why_no_workers([1], None, None, 'spawn')))\n"
    )

    done = subprocess.run([sys.executable, str(script)], env=ENVIRON, capture_output=True, text=True, timeout=200)

    assert "__main__" in done.stdout


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(10))


class Sharded(IterableDataset[int]):
    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        return iter(range(info.id if info else 0, 10, info.num_workers if info else 1))


def test_more_workers_are_refused_where_samples_would_come_twice() -> None:
    why = why_no_workers(Stream(), None, None, "fork")

    assert why is not None and "get_worker_info" in english(why)
    assert why_no_workers(Sharded(), None, None, "fork") is None


class Hanging(Deadly):
    """Waits for a lock that was held when its worker was forked."""

    lock = threading.Lock()

    def __getitem__(self, index: int) -> int:
        if index == 6:
            with self.lock:
                pass
        return index


def test_a_worker_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FeedIterator, "STUCK_AFTER_S", 0.5)
    with Hanging.lock:
        batches = iter(DataLoader(Hanging(), batch_size=4, num_workers=2))
        next(batches)

        with pytest.warns(RuntimeWarning, match=r"worker \d \(pid \d+\) is loading sample.*6.*lock"):
            batches._tell_if_stuck(_waited(batches))

    batches._shutdown_workers()


def _waited(batches: Any) -> float:
    began = time.monotonic()
    while time.monotonic() - began < 1.0:
        batches._receive()
    return time.monotonic() - began
