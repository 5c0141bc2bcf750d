"""A worker of the loader: takes tasks, loads samples, puts batches together, until it may leave."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils import fetch
from torch.utils.data._utils import worker as torch_worker

from .machine import CpuClock
from .memory import NO_SEGMENT, Area, Memory, Place, Segment
from .messages import BATCH, LOOK, SLOW, UNSENDABLE, Answer, Tally, Task, pack, read_task, take, write_answer
from .seeding import limit_threads, random_states, seed_collation, seed_sample, seed_worker

LOOK_FOR_PARENT_S = 2
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
# Below this a sample is too cheap to be timed and announced one by one.
_CHEAP_NS = 100_000
_CHECKED_TASKS = 8
_STRAGGLER = 4.0
_NOWHERE = Place(0, NO_SEGMENT, 0, 0, 0)
_PREEMPTED_NS = 20_000_000  # a busy machine makes any sample that much slower now and then


@dataclass(frozen=True, slots=True)
class Orders:
    dataset: Any
    collate_fn: Callable[[Any], Any]
    init_fn: Callable[[int], None] | None
    worker: int
    workers: int
    seat: int
    incarnation: int
    base_seed: int | None  # None: not drawn yet, it comes with the first task
    reseeds: bool  # every epoch, as a worker started for it would be
    seeding: str
    dies_with_parent: bool
    known_workers: int | None  # those that the script asked for, where it got others


@dataclass(frozen=True, slots=True)
class Channels:
    """The workers' shared ends of the channels. `first_tasks` are taken before `tasks`."""

    tasks: socket.socket
    first_tasks: socket.socket
    answers: socket.socket


class ParentGone(Exception):
    """The process that started this one has ended."""


def main(
    orders: Orders,
    channels: Channels,
    memory: Any,
    unwanted: list[socket.socket],
) -> None:
    """The worker process. `memory`: a descriptor, maybe as multiprocessing sends one; `unwanted`: the loader's ends."""
    parent = os.getppid()
    try:
        torch._C._set_worker_signal_handlers()  # a segmentation fault is told on stderr
        if orders.dies_with_parent:
            _die_with_parent()
        for end in unwanted:
            end.close()
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("MKL_NUM_THREADS", "1")
        limit_threads()
        # What came from the parent is here to stay. The collector would go through all of it, in every worker at about
        # the same time, and by writing into it make the pages that all of them share each worker's own.
        gc.freeze()
        descriptor = memory if isinstance(memory, int) else memory.detach()
        _Worker(orders, channels, Memory(descriptor), parent).serve()
    except (KeyboardInterrupt, ParentGone, BrokenPipeError, ConnectionResetError):
        pass  # the loader's process ends, or says itself why


def _die_with_parent() -> None:
    try:
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    except (OSError, AttributeError):
        pass  # the parent is looked for now and then as well


class _Worker:
    def __init__(self, orders: Orders, channels: Channels, memory: Memory, parent: int) -> None:
        self._orders = orders
        self._tasks = channels.tasks
        self._first_tasks = channels.first_tasks
        self._answers = channels.answers
        self._memory = memory
        self._parent = parent
        self._seat = orders.seat
        self._area = Area(memory, orders.seat, orders.incarnation)
        self._collate = Collator(orders.collate_fn)
        self._fetcher: Any = None
        self._whole_only = bool(getattr(orders.dataset, "__getitems__", None))
        self._tally = Tally()
        self._cpu_clock = CpuClock()
        self._waiting_ns = 0
        self._sample_ns = _CHEAP_NS
        self._typical_ns = 0.0
        self._batch_bytes = 0
        self._epoch = -1
        self._failed: ExceptionWrapper | None = None
        self._to_check = _CHECKED_TASKS if orders.seeding == "worker" else 0
        self._random = False
        self._number = WorkerNumber(orders.worker, orders.workers, orders.known_workers, orders.dataset)
        if orders.base_seed is not None:
            self._begin(orders.base_seed)

    def serve(self) -> None:
        while True:
            read = self._next_task()
            if read is None:
                self._area.drop_unused()
                return
            task, place = read
            self._memory.claim(self._seat, task.ticket, task.part, 0)
            if task.parts == 1 or self._memory.is_current(task.slot, task.ticket):
                self._work(task, task.indices if place is None else self._indices(place))
            self._memory.claim(self._seat, 0, 0, 0)

    def _next_task(self) -> tuple[Task, Place | None] | None:
        while True:
            try:
                packet = self._first_tasks.recv(1 << 17, socket.MSG_DONTWAIT)
            except BlockingIOError:
                packet = self._next_in_line()
            if packet != LOOK:
                return read_task(packet) if packet else None

    def _next_in_line(self) -> bytes:
        try:
            return self._tasks.recv(1 << 17)
        except BlockingIOError:  # for so long
            if os.getppid() != self._parent:
                raise ParentGone from None
            return LOOK

    def _indices(self, place: Place) -> Any:
        # All parts of a batch read the same copy: the loader gives it back.
        return pickle.loads(self._memory.map_segment(place.offset, place.data_bytes)[: place.data_bytes])

    def _begin(self, base_seed: int) -> None:
        """At the start, and in every epoch where workers seed anew."""
        orders = self._orders
        first = self._epoch < 0
        self._number.show(seed_worker(base_seed, orders.worker))
        if not first:
            return
        try:
            if orders.init_fn is not None:
                self._initialise(orders.init_fn)
            # Not before it is known which worker this is: whoever watches fetchers asks for that.
            self._fetcher = fetch._MapDatasetFetcher(orders.dataset, True, _as_they_are, False)
        except Exception:
            self._failed = self._error()

    def _initialise(self, function: Callable[[int], None]) -> None:
        try:
            function(self._number.shown)
        except Exception:
            if not self._orders.known_workers or not self._number.change():
                raise
            function(self._number.shown)

    def _work(self, task: Task, indices: Any) -> None:
        if self._epoch != task.epoch:
            if (self._epoch < 0 and self._orders.base_seed is None) or (self._epoch >= 0 and self._orders.reseeds):
                self._begin(task.base_seed)
            self._epoch = task.epoch
        samples = self._failed or self._fetch(task, indices)
        outcomes = [samples] if task.parts == 1 else self._join(task, samples)
        del samples
        if outcomes is not None:
            self._finish(task, outcomes)

    def _error(self) -> ExceptionWrapper:
        return ExceptionWrapper(where=f"in DataLoader worker process {self._orders.worker}")

    # Loading

    def _fetch(self, task: Task, indices: Any) -> Any:
        before = random_states() if self._to_check else None
        began_cpu = self._cpu_clock.read_ns()
        self._waiting_ns = self._cpu_clock.waiting_ns
        began = time.perf_counter_ns()
        samples = self._load(task, indices)
        if isinstance(samples, ExceptionWrapper) and self._number.change():
            samples = self._load(task, indices)
            if isinstance(samples, ExceptionWrapper):
                self._number.change_back()  # that was not it
        took = time.perf_counter_ns() - began
        self._tally.cpu_ns += self._cpu_clock.read_ns() - began_cpu
        self._sample_ns = took // max(1, len(indices))
        self._tally.samples += len(indices)
        self._tally.fetch_ns += took
        if before is not None:
            self._to_check -= 1
            self._random = self._random or before != random_states()
        return samples

    def _load(self, task: Task, indices: Any) -> Any:
        try:
            one_by_one = not self._whole_only and (self._sample_ns >= _CHEAP_NS or self._orders.seeding == "sample")
            return self._one_by_one(task, indices) if one_by_one else self._together(task, indices)
        except Exception:
            # Not kept in a variable: its traceback would keep the samples.
            return self._error()

    def _together(self, task: Task, indices: Any) -> Any:
        self._memory.claim(self._seat, task.ticket, task.part, -1)
        if self._orders.seeding == "sample":
            seed_sample(task.base_seed, task.epoch, task.batch, task.first)
        return self._fetcher.fetch(indices)

    def _one_by_one(self, task: Task, indices: Any) -> list[Any]:
        samples = []
        load, claim, clock = self._fetcher.fetch, self._memory.claim, time.perf_counter_ns
        per_sample = self._orders.seeding == "sample"
        for place, index in enumerate(indices):
            claim(self._seat, task.ticket, task.part, place)
            if per_sample:
                seed_sample(task.base_seed, task.epoch, task.batch, task.first + place)
            began = clock()
            samples.append(load([index])[0])
            self._note(index, clock() - began)
        return samples

    def _note(self, index: Any, took_ns: int) -> None:
        typical = self._typical_ns or took_ns
        self._tally.slowest_ns = max(self._tally.slowest_ns, took_ns)
        limit_ns = max(_STRAGGLER * typical, typical + _PREEMPTED_NS)
        if took_ns > limit_ns and took_ns - self._waited_for_cpu_ns() > limit_ns:
            self._tally.slow_ns += took_ns
            if type(index) is int and index >= 0:
                # At once: the loader knows before the batch arrives, and begins it earlier in the next epoch.
                self._send(write_answer(Answer(SLOW, index, _NOWHERE, False, False, Tally())))
        # A straggler moves it hardly more than any other sample does.
        self._typical_ns = typical + 0.1 * (min(took_ns, _STRAGGLER * typical) - typical)

    def _waited_for_cpu_ns(self) -> int:
        """Since the task began, or since the last call: caused by the machine, not by the sample."""
        before = self._waiting_ns
        self._cpu_clock.read_ns()
        self._waiting_ns = self._cpu_clock.waiting_ns
        return self._waiting_ns - before

    # Putting the batch together

    def _join(self, task: Task, samples: Any) -> list[Any] | None:
        """Hand this part over; the worker with the last part gets all of them."""
        began = time.perf_counter_ns()
        memory = self._memory
        last = memory.count_part(task.slot, task.ticket, only_if_last=True)
        if last is False:
            last = self._leave(task, samples)
        outcomes = self._gather(task, samples) if last else None
        self._tally.parts += 1
        self._tally.parts_ns += time.perf_counter_ns() - began
        return outcomes

    def _leave(self, task: Task, samples: Any) -> bool | None:
        try:
            place = pack(samples, self._area)
        except MemoryError:
            raise
        except Exception:
            self._answer(UNSENDABLE, task, _NOWHERE)
            return None
        if not self._memory.put_part(task.slot, task.ticket, task.part, place):
            self._memory.release(place.seat, place.number)
            return None
        return self._memory.count_part(task.slot, task.ticket, only_if_last=False)

    def _gather(self, task: Task, own: Any) -> list[Any] | None:
        outcomes = []
        for part in range(task.parts):
            place = self._memory.take_part(task.slot, task.ticket, part)
            if part == task.part:
                outcomes.append(own)
                if place is not None:
                    self._memory.release(place.seat, place.number)
            elif place is not None:
                outcomes.append(take(self._memory, place))
            else:
                return None  # not wanted any more
        return outcomes

    def _finish(self, task: Task, outcomes: list[Any]) -> None:
        began = time.perf_counter_ns()
        batch = next((o for o in outcomes if isinstance(o, ExceptionWrapper)), None)
        segment = None
        try:
            if batch is None:
                samples = outcomes[0] if len(outcomes) == 1 else [s for part in outcomes for s in part]
                if self._collate.is_default and self._batch_bytes:
                    segment = self._area.take(self._batch_bytes)
                if self._orders.seeding == "sample":
                    seed_collation(task.base_seed, task.epoch, task.batch)
                before = random_states() if self._to_check else None
                batch = self._collate(samples, segment)
                self._random = self._random or (before is not None and before != random_states())
                del samples
        except Exception:
            batch = self._error()
        place = self._pack(batch, segment)
        self._batch_bytes = place.data_bytes + place.pickle_bytes
        self._tally.collate_ns += time.perf_counter_ns() - began
        self._answer(BATCH, task, place)

    def _pack(self, batch: Any, segment: Any) -> Place:
        try:
            return pack(batch, self._area, segment)
        except Exception:
            if isinstance(batch, ExceptionWrapper):
                # Its type cannot be sent; what it says can.
                batch.exc_type = RuntimeError
                return pack(batch, self._area)
            return pack(self._error(), self._area)

    def _answer(self, kind: int, task: Task, place: Place) -> None:
        packet = write_answer(Answer(kind, task.ticket, place, self._random, self._number.is_changed, self._tally))
        self._tally = Tally()
        self._send(packet)

    def _send(self, packet: bytes) -> None:
        while True:
            try:
                self._answers.send(packet)
                return
            except BlockingIOError:  # for so long
                if os.getppid() != self._parent:
                    raise ParentGone from None


def _as_they_are(samples: Any) -> Any:
    return samples


# Collation into the shared memory that the batch is sent from.


class Collator:
    """Calls a loader's `collate_fn` in a worker.

    Only torch's own collation writes right into shared memory: one of the user's may keep what it made, and a segment
    is written anew. Inside a worker torch would take fresh shared memory for every batch; this spares that as well.
    """

    def __init__(self, collate_fn: Callable[[Any], Any]) -> None:
        self._collate_fn = collate_fn
        self._segment: Segment | None = None
        self.is_default = collate_fn is torch_collate.default_collate
        self._stack = torch_collate.default_collate_fn_map.get(torch.Tensor)
        if self._stack is torch_collate.collate_tensor_fn:
            torch_collate.default_collate_fn_map[torch.Tensor] = self._stack_tensors

    def __call__(self, samples: Any, segment: Segment | None) -> Any:
        self._segment = segment
        try:
            return self._collate_fn(samples)
        finally:
            self._segment = None

    def _stack_tensors(self, samples: Any, *, collate_fn_map: Any = None) -> Any:
        first = samples[0]
        if type(first) is not torch.Tensor or first.layout != torch.strided or first.is_nested:
            return torch_collate.collate_tensor_fn(samples, collate_fn_map=collate_fn_map)
        return torch.stack(samples, 0, out=self._memory_for(first, len(samples)))

    def _memory_for(self, first: torch.Tensor, count: int) -> torch.Tensor | None:
        size = count * first.nbytes
        at = self._segment.reserve(size) if self._segment is not None and size and first.device.type == "cpu" else None
        if at is None:
            return None
        assert self._segment is not None
        memory = torch.frombuffer(self._segment.mapped, dtype=torch.uint8, count=size, offset=at)
        shape = (count, *first.size())
        stride = torch.empty(shape, dtype=first.dtype, device="meta").stride()
        return torch.empty(0, dtype=first.dtype).set_(memory.untyped_storage(), 0, shape, stride)


# The worker number that the script's code sees: `torch.utils.data.get_worker_info()`. A dataset may have room for as
# many workers as the script asks for: a row of statistics each, a list of seeds. With more workers, one with an
# unexpected number fails there. It then shows a number that the script knows; since another worker may show the same
# one at the same time, this is done only after a failure.


class WorkerNumber:
    """Of one worker. `known`: how many workers the script asked for, None where it got as many."""

    def __init__(self, worker: int, workers: int, known: int | None, dataset: Any) -> None:
        self._own = (worker, workers)
        self._known = known
        self._dataset = dataset
        self._seed = 0
        self.is_changed = False

    @property
    def shown(self) -> int:
        return self._own[0] % self._known if self.is_changed and self._known else self._own[0]

    def show(self, seed: int | None = None) -> None:
        """From now on the script sees it."""
        self._seed = self._seed if seed is None else seed
        if self.is_changed and not self._known:
            torch_worker._worker_info = None  # as in the process that trains, where it made its samples itself
            return
        workers = self._known if self.is_changed and self._known else self._own[1]
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=self.shown, num_workers=workers, seed=self._seed, dataset=self._dataset
        )

    def change(self) -> bool:
        """Show one that the script knows; False where it does already."""
        if self.is_changed or self._known is None or (self._known and self._own[0] < self._known):
            return False
        self.is_changed = True
        self.show()
        return True

    def change_back(self) -> None:
        self.is_changed = False
        self.show()
