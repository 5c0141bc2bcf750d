"""Batches as they come in: read by the loop that waits for them, or by a thread that pins them beforehand."""

from __future__ import annotations

import queue
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._utils import ExceptionWrapper

from . import packing
from .crew import Crew
from .leaves import pinned
from .memory import NO_SEGMENT
from .messages import Answer, read_answer

# Batches that the caller keeps are copied out when there are so many that workers would run out of segments.
_MOST_HELD = 256
_LOOK_AROUND_S = 0.1


@dataclass(frozen=True, slots=True)
class Arrival:
    """An answer and the object that came with it."""

    answer: Answer
    batch: Any


def _receive(crew: Crew) -> Arrival | None:
    try:
        packet = crew.answers.recv(4096)
    except BlockingIOError:
        return None
    answer = read_answer(packet)
    if answer.place.number == NO_SEGMENT:
        return Arrival(answer, None)
    memory = crew.memory
    buffer = memory.open(answer.place) if memory.held < _MOST_HELD else memory.copy(answer.place)
    try:
        return Arrival(answer, packing.unpack(buffer, answer.place))
    except Exception:
        # As when a worker's error: it is raised where the batch is asked for.
        return Arrival(answer, ExceptionWrapper(where="while a batch was received"))


class Inbox:
    """Read when a batch is asked for."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def get(self, timeout_s: float, tasks_too: bool) -> list[Arrival]:
        """What has arrived. Comes back early when a worker has ended or a task can be sent."""
        arrivals = self.now()
        if not arrivals and self._crew.wait(timeout_s, tasks_too):
            arrivals = self.now()
        return arrivals

    def now(self) -> list[Arrival]:
        """What is there already."""
        arrivals = []
        while (arrival := _receive(self._crew)) is not None:
            arrivals.append(arrival)
        return arrivals

    def close(self) -> None:
        return


class PinningInbox:
    """Read by a thread, which pins every batch."""

    def __init__(self, crew: Crew, device: int | None, pin: Callable[[Any], Any] = pinned) -> None:
        self._crew = crew
        self._pin = pin
        self._device = device
        self._arrived: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flatout-pin", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        torch.set_num_threads(1)
        if self._device is not None:
            torch.cuda.set_device(self._device)
        poller = select.poll()
        poller.register(self._crew.answers, select.POLLIN)
        while not self._closed.is_set():
            if not poller.poll(_LOOK_AROUND_S * 1000):
                continue
            arrival = _receive(self._crew)
            if arrival is not None:
                self._arrived.put(self._pinned(arrival))
                del arrival  # or the segment would stay taken until the next batch comes

    def _pinned(self, arrival: Arrival) -> Arrival:
        if isinstance(arrival.batch, ExceptionWrapper):
            return arrival
        try:
            return Arrival(arrival.answer, self._pin(arrival.batch))
        except Exception:
            return Arrival(arrival.answer, ExceptionWrapper(where="in pin memory thread"))

    def get(self, timeout_s: float, tasks_too: bool) -> list[Arrival]:
        try:
            first = self._arrived.get(timeout=min(max(timeout_s, 0.001), _LOOK_AROUND_S))
        except queue.Empty:
            return []
        return [first, *self.now()]

    def now(self) -> list[Arrival]:
        arrivals = []
        try:
            while True:
                arrivals.append(self._arrived.get_nowait())
        except queue.Empty:
            return arrivals

    def close(self) -> None:
        self._closed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)
