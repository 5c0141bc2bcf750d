"""Device prefetch under a script that knows nothing of it: its first use of a batch decides what is brought ahead."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from .device import Ahead
from .first_use import FirstUse
from .leaves import Path, leaves

_DEPTH = 2


class _Iteration:
    """One iterator of a loader, with the batches that are on their way."""

    __slots__ = ("ended", "started", "taken")

    def __init__(self) -> None:
        self.started: deque[tuple[Any, Any]] = deque()
        self.ended = False
        self.taken = 0


class BringAhead:
    """Looks at the first use of every tensor of a few batches; from then on iterators run one batch ahead.

    Only for iterators with workers: without, running ahead would draw the samples' random numbers before the model's.
    """

    def __init__(
        self, torch: Any, looks: int, tell: Callable[..., None], give_up: Callable[[str], None], device: str = "cuda"
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
            self._stop("its sampler draws from the script's random numbers as it goes")
            return batch
        self._is_first = False
        self._use = FirstUse()
        if not any(tensor.is_pinned() for _, tensor in leaves(batch)) and self._device_type == "cuda":
            self._stop("batches are not pinned, so their copies would block (loader.pin)")
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
            self._stop(f"the script uses {_words(path)} on the host before it moves ({name})")
        elif use.again:
            path, name = next(iter(use.again.items()))
            self._stop(f"the script uses {_words(path)} again after it has moved it ({name})")
        elif len(devices) != 1 or next(iter(devices)).type != self._device_type:
            self._stop("the batch does not go straight to one CUDA device")
        else:
            self._ways = set(use.moves) if self._ways is None else self._ways & set(use.moves)
            if self._looks_left == 0:
                ways, device = self._ways, next(iter(devices))
                self._ahead = Ahead(device, lambda path, tensor: path in ways)
                self._tell(device=str(device), tensors=len(ways))

    def _stop(self, why: str) -> None:
        self._looks_left = 0
        self._give_up(why)


def _words(path: Path) -> str:
    return "batch" + "".join(str(part) if str(part).startswith(".") else f"[{part!r}]" for part in path)
