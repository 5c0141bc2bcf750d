"""What a copy to the device leaves behind, as far as that can be seen without one."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from flatout.attach import tracer as ev
from flatout.attach.recorder import Recorder
from flatout.attach.sites import Site
from flatout.attach.tracer import clock
from flatout.attach.watch import transfers
from flatout.attach.watch.transfers import TransferWatch
from flatout.attach.wire import H2D
from flatout.store.recording import Recording, read_recording
from tests.unit.attach.contexts import Notes, make_context


def test_large_copies_are_looked_at_now_and_then_and_small_ones_never() -> None:
    notes, trouble = Notes(), list[Exception]()
    watch = TransferWatch(make_context(lambda: notes, trouble.append))
    pictures = torch.randint(0, 256, (8, 3, 64, 64)).float() / 255

    for _ in range(300):
        watch._note_copy(clock(), pictures, False, sys._getframe())
    watch._note_copy(clock(), torch.zeros(16), False, sys._getframe())
    watch._note_copy(clock(), torch.zeros(64, 64, 64).to_sparse(), False, sys._getframe())

    assert not trouble
    narrow = [value for what, value in notes.texts if what == "narrow"]
    assert 3 < len(narrow) < 10
    (kind,) = narrow[-1]["kinds"]
    assert (kind["dtype"], kind["narrow"], kind["bytes"]) == ("float32", "uint8", len(narrow) * pictures.nbytes)


@dataclass
class Piece:
    """A tensor as far as a copy of it is watched; `seconds` is what its copy takes."""

    seconds: float = 10e-6
    nbytes: int = 400
    is_cuda: bool = False
    pinned: bool = False
    is_moved: bool = True

    def is_pinned(self) -> bool:
        return self.pinned


@dataclass
class Device:
    """A script on a device of its own, with a clock that only its copies move."""

    folder: Path
    now: float = 100.0
    copies: int = 0
    seconds: float = 0.0
    timed: int = 0
    trouble: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._recorder = Recorder(str(self.folder / "made.rec"), {"pid": 1})
        context = make_context(lambda: self._recorder, self.trouble.append)
        self._phases, self.tracer, self.sites = context.phases, context.tracer, context.sites
        self.watch = TransferWatch(context)
        self.to = self.watch._make_move("to", self._move)
        self.copy_ = self.watch._make_copy(self._copy)
        self.tracer.claim()
        self.tracer.on_device = True
        self._phases.begin(self.now)

    def clock(self) -> float:
        self.timed += 1
        return self.now

    def _move(self, piece: Piece, where: str, non_blocking: bool = False) -> Piece:
        self.copies += piece.is_moved and not piece.is_cuda
        self.seconds += piece.seconds if piece.is_moved and not piece.is_cuda else 0.0
        self.now += piece.seconds
        return Piece(is_cuda=piece.is_cuda != piece.is_moved)

    def _copy(self, target: Piece, piece: Piece, non_blocking: bool) -> Piece:
        return self._move(piece, "cuda")

    def step(self) -> None:
        """What follows the copies."""
        for code in (ev.BACKWARD_BEGINS, ev.BACKWARD_ENDS, 1 << 5 | ev.OPTIMIZER_BEGINS, ev.OPTIMIZER_ENDS):
            self.now += 0.001
            self.tracer.log(code)
            self.tracer.at(self.now)
        self.tracer.ended += 1

    def recording(self) -> Recording:
        assert not self.trouble
        self.tracer.flush(self.now)
        self._phases.finish()
        self._recorder.close()
        return read_recording(self.folder / "made.rec")

    def sites_of(self, op: str) -> list[Site]:
        return [site for (name, _, _), site in self.sites._by_line.items() if name == op]


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device(tmp_path)
    monkeypatch.setattr(transfers, "clock", made.clock)
    return made


def test_of_many_small_copies_some_are_timed_and_all_are_counted(device: Device) -> None:
    draw = random.Random(1)
    total_bytes = 0

    for _ in range(40):
        for number in range(384):
            # The first waits for the device.
            seconds = 2e-3 if number == 0 else draw.uniform(5e-6, 15e-6)
            size = draw.randrange(4, 4000)
            total_bytes += size
            device.to(Piece(seconds, size, pinned=number % 4 == 0), "cuda", non_blocking=number % 2 == 0)
            device.now += 3e-6
        device.step()

    (site,) = device.sites_of("h2d")
    left_over = 40
    assert device.copies - left_over <= site.count <= device.copies == 40 * 384
    assert site.bytes == pytest.approx(total_bytes, rel=0.01)
    assert site.seconds == pytest.approx(device.seconds, rel=0.05)
    assert site.pinned / site.count == pytest.approx(0.25, abs=0.1)
    assert site.non_blocking / site.count == pytest.approx(0.5, abs=0.1)
    assert site.longest_s == pytest.approx(2e-3)
    assert device.timed < 2 * 0.25 * device.copies
    steps = device.recording().records["step"]
    assert steps["copies"].sum() == site.count
    assert steps["phase_s"][:, H2D].sum() == pytest.approx(device.seconds, rel=0.08)


def test_copies_between_kernels_are_timed_as_long_as_they_wait(device: Device) -> None:
    for number in range(2000):
        device.to(Piece(seconds=200e-6 if number < 1000 else 20e-6), "cuda")
        device.now += 50e-6

    (site,) = device.sites_of("h2d")
    assert site.seconds == pytest.approx(device.seconds, rel=0.05)


def test_one_long_wait_does_not_count_for_its_neighbours(device: Device) -> None:
    for number in range(1000):
        device.to(Piece(seconds=0.5 if number == 700 else 10e-6), "cuda")

    (site,) = device.sites_of("h2d")
    assert site.seconds <= device.seconds + 1e-6


def test_a_few_copies_a_step_are_timed_each(device: Device) -> None:
    for _ in range(30):
        for _ in range(20):
            device.to(Piece(), "cuda")
        device.step()

    (site,) = device.sites_of("h2d")
    assert device.timed == 2 * device.copies == 2 * site.count
    assert site.seconds == pytest.approx(device.seconds)


def test_lines_that_take_turns_are_told_apart(device: Device) -> None:
    for _ in range(20):
        for number in range(100):
            device.to(Piece(nbytes=100), "cuda")
            if number % 10 == 0:
                device.copy_(Piece(is_cuda=True), Piece(nbytes=1000), True)
        device.to(Piece(nbytes=5), "cuda")
        device.step()

    pieces, copied, last = device.sites_of("h2d")
    assert pieces.count == pytest.approx(2000, abs=20) and pieces.bytes == pytest.approx(200_000, rel=0.02)
    assert (copied.count, copied.bytes, copied.non_blocking) == (200, 200_000, 200)
    assert (last.count, last.bytes) == (20, 100)


def test_a_large_copy_among_small_ones_is_always_timed(device: Device) -> None:
    for number in range(1000):
        large = number % 50 == 49
        device.to(Piece(5e-3 if large else 10e-6, 1 << 22 if large else 64), "cuda")

    (site,) = device.sites_of("h2d")
    assert site.bytes == pytest.approx(20 * (1 << 22), rel=0.01)
    assert site.seconds == pytest.approx(device.seconds, rel=0.05)


@pytest.mark.parametrize("every", [2, 7, 100])
def test_on_a_line_that_does_not_always_copy_each_call_is_timed(device: Device, every: int) -> None:
    for number in range(2000):
        device.to(Piece(is_moved=number % every != 1), "cuda")

    (site,) = device.sites_of("h2d")
    assert site.count == pytest.approx(device.copies, abs=20)
    assert site.seconds == pytest.approx(device.seconds, rel=0.02)


def test_waits_at_the_line_of_copies_stay_exact(device: Device) -> None:
    for number in range(1000):
        device.to(Piece(seconds=30e-6, is_cuda=number % 100 == 99), "cuda")

    (wait,) = device.sites_of("to")
    assert wait.count == 10 and wait.seconds == pytest.approx(300e-6)
    assert device.tracer.codes.count(ev.ENTER_SYNC) == 10


def test_in_a_window_for_hidden_waits_every_copy_is_watched(device: Device) -> None:
    device.tracer.every_step = True

    for _ in range(500):
        device.to(Piece(), "cuda")

    assert device.timed == 2 * 500


def test_a_forked_child_counts_for_itself(device: Device) -> None:
    for _ in range(100):
        device.to(Piece(), "cuda")
    (before,) = device.sites_of("h2d")
    counted = before.count

    device.sites.forget()
    device.watch._bursts.forget()
    for _ in range(10):
        device.to(Piece(), "cuda")

    (site,) = device.sites_of("h2d")
    assert site.count == 10 and before.count == counted
