"""The loader's parts by themselves: packing, cutting batches, tuning, CPU budget, pinning, making a loader again."""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

from flatout.attach.watch.loader import _queue_depth
from flatout.feed import DataLoader, autotune
from flatout.feed.iterator import FeedIterator, PinningInbox
from flatout.feed.leaves import pin_batch
from flatout.feed.loader import remake_loader
from flatout.feed.machine import cpus_of_rank
from flatout.feed.memory import Area, Memory
from flatout.feed.messages import Tally, pack, take
from flatout.feed.schedule import _cuts
from flatout.feed.tuning import Costs, Limits, Tuner

MS = 1_000_000


def test_what_is_packed_comes_out_bit_by_bit_and_with_its_strides() -> None:
    memory = Memory()
    image = torch.randn(4, 3, 8, 8)
    value = {
        "image": image,
        "last": image.to(memory_format=torch.channels_last),
        "view": image[1],
        "array": numpy.arange(12.0).reshape(3, 4),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "none": torch.empty(0, 3),
        "one": torch.tensor(3),
        "wide": torch.ones(1).expand(50, 50),
        "text": ["a", None, 2],
    }

    taken = take(memory, pack(value, Area(memory, 3, 1)))

    for name, expected in value.items():
        if isinstance(expected, torch.Tensor):
            assert torch.equal(taken[name], expected) and taken[name].stride() == expected.stride(), name
            assert taken[name].dtype == expected.dtype
    assert (taken["array"] == value["array"]).all() and taken["text"] == value["text"]
    taken["image"][1] = 5.0
    assert (taken["view"] == 5.0).all()  # still a view of the same memory


def test_a_segment_is_used_again_only_when_nobody_holds_what_is_in_it() -> None:
    memory = Memory()
    area = Area(memory, 3, 1)
    first = pack(torch.zeros(10), area)
    held = take(memory, first)[2:4]

    while_held = pack(torch.ones(10), area)
    del held
    afterwards = pack(torch.ones(10), area)

    assert while_held.number != first.number
    assert afterwards.number == first.number


def learnt(sample_ms: float, part_ms: float = 0.3, slow_ms: float = 0.0) -> Costs:
    costs = Costs()
    for _ in range(40):
        fetch_ns = int((16 * sample_ms + slow_ms) * MS)
        tally = Tally(16, fetch_ns, int(max(sample_ms, slow_ms) * MS), int(slow_ms * MS), 1, int(part_ms * MS), 0, 0)
        costs.learn(tally, 1000)
    return costs


def test_batches_are_cut_where_that_costs_little() -> None:
    assert learnt(0.01).parts_for(16, 4, 8, False) == 1
    assert learnt(100.0).parts_for(16, 4, 8, False) == 16
    assert learnt(5.0).parts_for(16, 4, 8, False) < learnt(5.0, slow_ms=200.0).parts_for(16, 4, 8, False)
    assert learnt(100.0).parts_for(16, 4, 256, False) == 1  # tasks must fit into the channel
    assert learnt(100.0).parts_for(16, 1, 2, False) == 1


def test_what_was_slow_is_expected_to_be_so_until_it_is_not() -> None:
    costs = Costs()
    costs.note_slow(7)

    assert costs.slow_ones([6, 7, 8]) == []  # of this epoch: it has been asked for already
    costs.begin_epoch()
    assert costs.slow_ones([6, 7, "7"]) == [1]
    costs.note_slow(7)
    costs.begin_epoch()
    assert costs.slow_ones([7]) == [0]
    costs.begin_epoch()
    assert costs.slow_ones([7]) == []


def test_a_batch_is_cut_so_that_slow_samples_are_alone() -> None:
    assert _cuts(16, 2) == (0, 8, 16)
    assert _cuts(16, 2, [5, 15]) == (0, 5, 6, 8, 15, 16)
    assert _cuts(16, 1) == () and _cuts(16, 1, [0]) == (0, 1, 16)


class LastIsSlow:
    """Writes down when each sample is begun."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        with self.log.open("ab") as file:
            file.write(b"%d\n" % index)
        time.sleep(0.2 if index == 63 else 0.002)
        return index


def test_a_sample_that_was_slow_is_begun_before_its_turn(tmp_path: Path) -> None:
    loader = DataLoader(
        LastIsSlow(tmp_path / "log"), batch_size=4, num_workers=3, prefetch_factor=4, persistent_workers=True
    )

    places = []
    for _ in range(2):
        assert [index for batch in loader for index in batch.tolist()] == list(range(64))
        begun = (tmp_path / "log").read_text().split()
        places.append(begun.index("63"))
        (tmp_path / "log").unlink()

    assert places[0] >= 60
    assert places[1] <= 56  # as soon as its batch is one of the twelve that may be under way


@dataclass
class Machine:
    """A make-believe loader: how fast batches come with so many workers, and what the script does between them."""

    sample_s: float
    cpu_share: float
    cpus: float
    step_s: float
    drag: float = 0.0  # by which a busy CPU slows the script down
    slowest_ns: float = 0.0
    batch_bytes: float = 1e6
    alone: float = 1.0  # of a sample's time, where no other worker is in the way

    @property
    def sample_ns(self) -> float:
        return self.alone * self.sample_s * 1e9

    def run(self, tuner: Tuner, steps: int, batch: int = 16) -> None:
        now = made = 0.0
        for _ in range(steps):
            able = min(tuner.workers, self.cpus / self.cpu_share)
            step_s = self.step_s * (1 + self.drag * max(0.0, tuner.workers * self.cpu_share - self.cpus + 1))
            loading_s = batch * self.sample_s / able
            asked, now = now + step_s, now + max(step_s, loading_s)
            made += 1
            tuner.step(asked, now, int(made), self, batch)


@pytest.mark.parametrize(
    ("machine", "least", "most"),
    [
        (Machine(sample_s=0.005, cpu_share=1.0, cpus=8, step_s=0.02), 4, 6),  # 4 are needed
        (Machine(sample_s=0.005, cpu_share=1.0, cpus=8, step_s=0.0001), 8, 16),  # never enough: all CPUs
        (Machine(sample_s=0.010, cpu_share=0.02, cpus=2, step_s=0.01), 16, 24),  # waits for a network
        (Machine(sample_s=0.0001, cpu_share=1.0, cpus=8, step_s=0.05), 1, 1),  # one does
        (Machine(sample_s=0.020, cpu_share=1.0, cpus=16, step_s=0.02, drag=0.5), 8, 16),  # the script suffers
        # 13 seem enough, 20 are too many.
        (Machine(sample_s=0.0128, cpu_share=1.0, cpus=15, step_s=0.0114, drag=0.1, alone=0.6), 15, 15),
    ],
)
def test_tuning_finds_enough_workers_soon(machine: Machine, least: int, most: int) -> None:
    tuner = Tuner(1, 2, Limits(machine.cpus, 1 << 34))

    machine.run(tuner, 199)

    assert tuner.settled_at is not None
    assert least <= tuner.workers <= most


def test_first_steps_that_are_slow_do_not_make_the_guess_small() -> None:
    machine = Machine(sample_s=0.005, cpu_share=1.0, cpus=16, step_s=0.01)
    tuner = Tuner(1, 2, Limits(16, 1 << 34))

    tuner.step(0.0, 0.08, 1, machine, 16)
    tuner.step(3.0, 3.0, 2, machine, 16)  # kernels were loaded
    for step in range(3):
        tuner.step(3.01 + 0.08 * step, 3.08 + 0.08 * step, 3 + step, machine, 16)

    assert tuner.workers == 10


def test_a_number_that_was_enough_before_is_only_seen_to_be_so() -> None:
    machine = Machine(sample_s=0.005, cpu_share=1.0, cpus=8, step_s=0.02)
    tuner = Tuner(5, 10, Limits(8, 1 << 34), is_found=True)

    machine.run(tuner, 30)

    assert tuner.workers == 5 and tuner.settled_at is not None


def test_a_number_that_was_enough_before_and_is_not_now_grows() -> None:
    machine = Machine(sample_s=0.005, cpu_share=1.0, cpus=8, step_s=0.012)
    tuner = Tuner(3, 6, Limits(8, 1 << 34), is_found=True)

    machine.run(tuner, 199)

    assert tuner.workers >= 7


@pytest.mark.parametrize(("sample_s", "grows"), [(2.0, True), (1.4, False)])
def test_batches_that_lie_ready_hide_that_workers_are_too_few_and_the_end_of_an_epoch_does_not(
    sample_s: float, grows: bool
) -> None:
    machine = Machine(sample_s=sample_s, cpu_share=1.0, cpus=16, step_s=0.3)
    tuner = Tuner(5, 10, Limits(16, 1 << 34), is_found=True)

    # Nobody waits: 40 batches were made before, and three in four steps one more is.
    for step in range(30):
        tuner.step(0.3 * step, 0.3 * step, 40 + int(0.75 * step), machine, 1)

    assert tuner.workers == 8 if grows else (tuner.workers == 5 and tuner.settled_at is not None)


def test_slow_steps_are_judged_by_fewer() -> None:
    slow, quick = (Machine(sample_s=0.1, cpu_share=1.0, cpus=8, step_s=one) for one in (0.8, 0.08))
    tuners = [Tuner(1, 2, Limits(8, 1 << 34)) for _ in range(2)]

    for machine, tuner in zip((slow, quick), tuners, strict=True):
        machine.run(tuner, 199, batch=4)

    settled = [tuner.settled_at for tuner in tuners]
    assert settled[0] is not None and settled[1] is not None and settled[0] < settled[1]


def test_what_happens_between_epochs_is_not_the_loops_pace() -> None:
    machine = Machine(sample_s=0.005, cpu_share=1.0, cpus=8, step_s=0.02)
    tuners = [Tuner(1, 2, Limits(8, 1 << 34)) for _ in range(2)]
    for tuner, pause_s in zip(tuners, (0.0, 5.0), strict=True):
        now = 0.0
        for step in range(150):
            if step % 16 == 0:
                tuner.begin_epoch()
                now += pause_s
            asked, now = now + 0.02, now + max(0.02, 16 * machine.sample_s / min(tuner.workers, 8))
            tuner.step(asked, now, step + 1, machine, 16)

    assert tuners[0].workers == tuners[1].workers and tuners[0].settled_at == tuners[1].settled_at


def test_no_more_workers_than_are_of_use() -> None:
    machine = Machine(sample_s=0.05, cpu_share=0.01, cpus=16, step_s=0.0001)
    tuner = Tuner(1, 2, Limits(16, 1 << 34, 5))

    machine.run(tuner, 199)

    assert tuner.workers == 5 and tuner.settled_at is not None


def test_batches_ahead_stay_within_memory() -> None:
    machine = Machine(sample_s=0.01, cpu_share=0.1, cpus=4, step_s=0.0001, slowest_ns=1e9, batch_bytes=1e9)
    tuner = Tuner(1, 2, Limits(4, 40 * 10**9))

    machine.run(tuner, 199)

    assert tuner.ahead == 5


def test_ranks_share_the_cpus() -> None:
    assert cpus_of_rank({"LOCAL_WORLD_SIZE": "4"}, cpus=16.0) == 4.0
    assert cpus_of_rank({"LOCAL_WORLD_SIZE": "many"}, cpus=16.0) == 16.0


class Sample:
    def __init__(self) -> None:
        self.image = torch.zeros(2)
        self.names = ["a"]


def test_the_tensors_of_a_custom_batch_are_pinned_in_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    # Stands for a page-locked copy.
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, *_: tensor + 1)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: bool((tensor == 1).all()))
    batch = {"sample": Sample(), "n": (torch.zeros(1), "text")}

    copied = pin_batch(batch)

    assert copied["sample"] is not batch["sample"]
    assert (copied["sample"].image == 1).all() and copied["sample"].names == ["a"]
    assert (copied["n"][0] == 1).all() and copied["n"][1] == "text"
    assert (batch["sample"].image == 0).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_arrive_pinned() -> None:
    loader = DataLoader([torch.zeros(3)] * 40, batch_size=4, num_workers=2, pin_memory=True)

    assert all(batch.is_pinned() for batch in loader)


def test_a_thread_that_pins_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()

    def pin(batch: Any) -> Any:
        seen.add(threading.current_thread().name)
        return batch + 0.5

    monkeypatch.setattr(FeedIterator, "_make_inbox", lambda self: PinningInbox(self._crew, None, pin))

    batches = [batch.tolist() for batch in DataLoader([float(i) for i in range(40)], batch_size=4, num_workers=2)]

    assert [x for batch in batches for x in batch] == [i + 0.5 for i in range(40)]
    assert seen == {"flatout-pin"}


def test_a_batch_that_lies_ready_counts_once_where_batches_are_pinned() -> None:
    iterator = iter(DataLoader(list(range(8)), batch_size=2, num_workers=1))
    iterator._pin_memory = True
    iterator._queue.batches = {1: None, 2: None}

    assert _queue_depth(iterator) == 2


def test_a_loader_is_made_again_with_all_it_has() -> None:
    def collate(samples: list[int]) -> int:
        return sum(samples)

    generator = torch.Generator()
    before = TorchLoader(
        list(range(30)), 4, True, num_workers=2, collate_fn=collate, drop_last=True, generator=generator
    )

    after = remake_loader(before, seeding="sample")

    assert isinstance(after, TorchLoader) and after.sampler is before.sampler and after.generator is generator
    assert (after.batch_size, after.drop_last, after.collate_fn) == (4, True, collate)
    assert (after.num_workers, after.prefetch_factor, after.seeding) == (2, 2, "sample")
    assert len(after) == len(before)


def test_a_tuned_loader_gives_the_same_batches() -> None:
    dataset = list(range(90))

    tuned = autotune(TorchLoader(dataset, 4))

    assert [b.tolist() for b in tuned] == [b.tolist() for b in TorchLoader(dataset, 4)]
    assert tuned.num_workers >= 1


class Frozen:
    """Tells how much of what its process holds the garbage collector leaves alone."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return gc.get_freeze_count()


def test_workers_do_not_go_through_what_they_have_from_their_parent() -> None:
    before = gc.get_freeze_count()
    found = [int(count) for batch in DataLoader(Frozen(), 2, num_workers=2) for count in batch]

    assert min(found) > 10_000, "torch alone is more"
    # Fewer where one of those that were frozen before has gone meanwhile.
    assert gc.get_freeze_count() <= before, "the parent's own collector is left as it is"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"seeding": "none"}, "seeding must be one of worker, sample, got 'none'"),
        ({"restarts": -1}, "restarts must be at least 0, got -1"),
        ({"seeding": "sample", "per_sample": False}, "needs per_sample=True"),
        ({"num_workers": -1}, "num_workers option should be non-negative"),
    ],
)
def test_wrong_settings_are_told(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        DataLoader([1], **wrong)
