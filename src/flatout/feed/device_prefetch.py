"""Brings batches to the device ahead of time, on a stream of their own, while the model works on the one before."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from ..records.message import Message, message
from .leaves import Path, leaves, map_tensors

Wanted = Callable[[Path, torch.Tensor], bool]


class Ahead:
    """Copies batches on a side stream and hands them over so that no kernel sees one that is not there yet."""

    def __init__(self, device: torch.device, wanted: Wanted | None = None) -> None:
        self._device = device
        self._wanted = wanted
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def begin(self, batch: Any) -> tuple[Any, Any]:
        """Start copying; gives back what `arrived` needs."""
        if self._stream is None:
            return map_tensors(batch, self._moved), None
        with torch.cuda.stream(self._stream):
            moved = map_tensors(batch, self._moved)
            return moved, self._stream.record_event()

    def arrived(self, started: tuple[Any, Any]) -> Any:
        """The batch, for use on the current stream. The host does not wait."""
        moved, event = started
        if event is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(event)
            for _, tensor in leaves(moved):
                if tensor.is_cuda:
                    # Its memory must not be handed to the next copy while this stream still reads it.
                    tensor.record_stream(current)
        return moved

    def _moved(self, path: Path, tensor: torch.Tensor) -> torch.Tensor:
        if self._wanted is not None and not self._wanted(path, tensor):
            return tensor
        return tensor.to(self._device, non_blocking=tensor.is_pinned() if self._stream is not None else False)


class Prefetched:
    """A loader whose batches arrive on the device; everything else is the loader's own."""

    def __init__(self, loader: Iterable[Any], device: torch.device | str | int, depth: int = 1) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        self._loader = loader
        self._device = torch.device(device)
        self._depth = depth

    def __iter__(self) -> Iterator[Any]:
        ahead, started = Ahead(self._device), deque[tuple[Any, Any]]()
        batches = iter(self._loader)
        for batch in batches:
            started.append(ahead.begin(batch))
            if len(started) > self._depth:
                yield ahead.arrived(started.popleft())
        while started:
            yield ahead.arrived(started.popleft())

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":
            raise AttributeError(name)  # while being unpickled there is none yet
        return getattr(self._loader, name)


def prefetch(loader: Iterable[Any], device: torch.device | str | int, depth: int = 1) -> Prefetched:
    """`for batch in flatout.prefetch(loader, "cuda")`: batches are on the device when they are handed over."""
    return Prefetched(loader, device, depth)


# Device prefetch for a script that does not ask for it: its first use of a batch decides what is copied ahead.

_DEPTH = 2


@dataclass(slots=True)
class _Iteration:
    """One iterator of a loader, with the batches that are on their way."""

    started: deque[tuple[Any, Any]] = field(default_factory=deque)
    ended: bool = False
    taken: int = 0


class BringAhead:
    """Looks at the first use of every tensor of a few batches; from then on iterators run one batch ahead.

    Only for iterators with workers: without, running ahead would draw the samples' random numbers before the model's.
    """

    def __init__(
        self,
        torch: Any,
        looks: int,
        tell: Callable[..., None],
        give_up: Callable[[Message], None],
        device: str = "cuda",
    ) -> None:
        self._torch = torch
        self._looks_left = looks
        self._tell = tell
        self._give_up = give_up
        self._device_type = device
        self._use: FirstUse | None = None
        self._is_first = True
        self._ways: set[Path] | None = None
        self._ahead: Ahead | None = None
        # Batches that are taken from an iterator already belong to it.
        self._iterations: weakref.WeakKeyDictionary[Any, _Iteration] = weakref.WeakKeyDictionary()

    def holds(self, iterator: Any) -> bool:
        """Whether batches of this iterator are on their way: they come before any other of it."""
        return iterator in self._iterations

    def next(self, iterator: Any, original: Callable[[Any], Any], rests: bool = False) -> Any:
        """The iterator's next batch. While it rests, those that are on their way come, and no more are sent for."""
        if rests:
            return self._left(iterator, original)
        self._conclude()
        if self._ahead is not None:
            return self._brought(iterator, original, self._ahead)
        before = self._torch.get_rng_state() if self._looks_left else None
        batch = original(iterator)
        if before is None:
            return batch
        self._looks_left -= 1
        # The first batch of all may well seed its sampler.
        if not self._is_first and not self._torch.equal(before, self._torch.get_rng_state()):
            self._stop(message("device_prefetch.sampler_draws"))
            return batch
        self._is_first = False
        self._use = FirstUse()
        if not any(tensor.is_pinned() for _, tensor in leaves(batch)) and self._device_type == "cuda":
            self._stop(message("device_prefetch.not_pinned"))
            return batch
        return self._use.watched(batch)

    def _brought(self, iterator: Any, original: Callable[[Any], Any], ahead: Ahead) -> Any:
        going = self._iterations.get(iterator)
        if going is None or going.taken != iterator._num_yielded:
            # New, or begun anew since: batches of an epoch that was left are not wanted any more.
            going = self._iterations[iterator] = _Iteration()
        try:
            while len(going.started) < _DEPTH and not going.ended:
                going.started.append(ahead.begin(original(iterator)))
        except StopIteration:
            going.ended = True
        finally:
            going.taken = iterator._num_yielded
        if not going.started:
            # As the iterator itself would: it may be asked again.
            del self._iterations[iterator]
            raise StopIteration
        return ahead.arrived(going.started.popleft())

    def _left(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        going = self._iterations.get(iterator)
        if self._ahead is None or going is None or not going.started or going.taken != iterator._num_yielded:
            self._iterations.pop(iterator, None)
            return original(iterator)
        return self._ahead.arrived(going.started.popleft())

    def _conclude(self) -> None:
        """What the first uses of the last batch say; after the last look, go ahead or give up."""
        use, self._use = self._use, None
        if use is None:
            return
        devices = set(use.moves.values())
        if use.touched:
            path, name = next(iter(use.touched.items()))
            self._stop(message("device_prefetch.used_on_host", tensor=_words(path), function=name))
        elif use.again:
            path, name = next(iter(use.again.items()))
            self._stop(message("device_prefetch.used_again", tensor=_words(path), function=name))
        elif len(devices) != 1 or next(iter(devices)).type != self._device_type:
            self._stop(message("device_prefetch.not_straight"))
        else:
            self._ways = set(use.moves) if self._ways is None else self._ways & set(use.moves)
            if self._looks_left == 0:
                ways, device = self._ways, next(iter(devices))
                self._ahead = Ahead(device, lambda path, tensor: path in ways)
                self._tell(device=str(device), tensors=len(ways))

    def _stop(self, why: Message) -> None:
        self._looks_left = 0
        self._give_up(why)


def _words(path: Path) -> str:
    return "batch" + "".join(str(part) if str(part).startswith(".") else f"[{part!r}]" for part in path)


# What a script does with a batch: only a tensor that goes straight to the device, once, can be copied ahead. A few
# batches are handed out as tensors of a subclass, which share the memory and note the first function that gets them.
# Every function returns plain tensors, so the subclass does not reach the model.

# Asking a tensor about itself reads none of its values.
_HARMLESS = frozenset({
    "size", "dim", "numel", "is_pinned", "__len__", "__hash__", "is_contiguous", "element_size", "ndimension", "stride",
    "nelement", "is_floating_point", "is_complex", "get_device",
})  # fmt: skip
_MOVES = frozenset({"to", "cuda"})


class FirstUse:
    def __init__(self) -> None:
        self.seen: set[Path] = set()
        self.moves: dict[Path, torch.device] = {}
        # What keeps a tensor from being brought ahead: its way and the function.
        self.touched: dict[Path, str] = {}
        # What is used again after it was moved: brought ahead, both uses would have the same memory.
        self.again: dict[Path, str] = {}

    def watched(self, batch: Any) -> Any:
        def change(path: Path, tensor: torch.Tensor) -> torch.Tensor:
            if type(tensor) is not torch.Tensor:
                self.touched[path] = type(tensor).__name__  # a class of its own may do anything
                return tensor
            self.seen.add(path)
            probe = tensor.as_subclass(Probe)
            probe.flatout_told = (self, path)
            return probe

        return map_tensors(batch, change)

    def note(self, path: Path, name: str, source: torch.Tensor, result: Any) -> None:
        if path in self.touched or name in _HARMLESS or (name == "__get__" and not isinstance(result, torch.Tensor)):
            return  # among them .shape, .dtype, .device
        if path in self.moves:
            self.again.setdefault(path, name)
        elif name in _MOVES and isinstance(result, torch.Tensor) and result.device != source.device:
            self.moves[path] = result.device
        else:
            self.touched[path] = name


class Probe(torch.Tensor):
    """A tensor of a batch that tells which function gets it first."""

    flatout_told: tuple[FirstUse, Path]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        probes: list[Probe] = []

        def plain(path: Path, tensor: torch.Tensor) -> torch.Tensor:
            if not isinstance(tensor, Probe):
                return tensor
            probes.append(tensor)
            return tensor.as_subclass(torch.Tensor)

        with torch._C.DisableTorchFunctionSubclass():
            result = func(*map_tensors(tuple(args), plain), **map_tensors(dict(kwargs or {}), plain))
            for probe in probes:
                told = probe.__dict__.get("flatout_told")
                if told is not None:
                    told[0].note(told[1], getattr(func, "__name__", str(func)), probe, result)
        return result
