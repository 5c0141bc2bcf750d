"""Replay: the script trains on batches that are on the device already, which shows what a perfect loader would reach.

From the first backward pass on, the loader it trains from yields the same few batches over and over, as often as it
would have yielded its own. The script's `.to(device)` finds the tensors there. An epoch that begins then starts no
workers. This is for a trial that measures the ceiling: the trained weights are worthless.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from ..batch import attributes_of
from ..patching import Patches

# What a loader is known by, since some scripts build a new one every epoch, with a new dataset: the dataset's class and
# how many batches there are, as far as that is known.
_Kind = tuple[type, float]


class Replay:
    """Remembers which loader feeds the training, and gives its batches again."""

    def __init__(self, torch: Any, batches: int) -> None:
        self._torch = torch
        self._wanted = batches
        self._kept: list[Any] = []
        self._given = 0
        # Kinds and weak references: a loader kept alive to the end of the process makes its workers end slowly there,
        # 5 s each where they are persistent and pinned.
        self._last: _Kind | None = None
        self._training: _Kind | None = None
        self._of: WeakKeyDictionary[Any, _Kind] = WeakKeyDictionary()

    def install(self, module: Any, patches: Patches) -> None:
        """`module` is torch.utils.data.dataloader."""
        patches.replace(module.DataLoader, "__iter__", self._make_iter)
        patches.replace(
            module.DataLoader, "_get_iterator", partial(self._make_get_iterator, self._without_workers(module))
        )
        patches.replace(self._torch.autograd, "backward", self._make_backward)
        for kind in (module._SingleProcessDataLoaderIter, module._MultiProcessingDataLoaderIter):
            patches.replace(kind, "_next_data", self._make_next)

    def _make_iter(self, original: Any) -> Any:
        def __iter__(loader: Any) -> Any:
            iterator = original(loader)
            self._of[iterator] = _kind_of(loader)
            return iterator

        return __iter__

    def _without_workers(self, module: Any) -> type:
        """An iterator that gives what is kept. Without gradients batches are taken from the loader after all."""
        replay = self

        class Again(module._BaseDataLoaderIter):  # type: ignore[misc]
            def __init__(self, loader: Any, make: Callable[[Any], Any]) -> None:
                super().__init__(loader)
                self._make, self._loader = make, loader
                self._own: Any = None

            def _next_data(self) -> Any:
                if replay._torch.is_grad_enabled():
                    return replay._again(self, _kind_of(self._loader))
                self._own = self._own or self._make(self._loader)
                return self._own._next_data()

        return Again

    def _make_get_iterator(self, again: type, original: Callable[[Any], Any]) -> Any:
        def _get_iterator(loader: Any) -> Any:
            is_kept = len(self._kept) == self._wanted and self._torch.is_grad_enabled()
            if is_kept and loader.num_workers and _kind_of(loader) == self._training:
                return again(loader, original)
            return original(loader)

        return _get_iterator

    def _make_backward(self, original: Any) -> Any:
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self._training is None:
                self._training = self._last
            return original(*args, **kwargs)

        return backward

    def _make_next(self, original: Callable[[Any], Any]) -> Any:
        torch = self._torch

        def _next_data(iterator: Any) -> Any:
            kind = self._of.get(iterator)
            if not torch.is_grad_enabled() or kind is None:
                return original(iterator)
            self._last = kind
            if kind != self._training:
                return original(iterator)
            if len(self._kept) < self._wanted:
                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                self._kept.append(self._move(original(iterator), device))
                return self._kept[-1]
            return self._again(iterator, kind)

        return _next_data

    def _again(self, iterator: Any, kind: _Kind) -> Any:
        if iterator._num_yielded >= kind[1]:
            raise StopIteration
        self._given += 1
        return self._kept[self._given % len(self._kept)]

    def _move(self, value: Any, device: Any) -> Any:
        """The same with every tensor in it on the device; objects keep their type and have their tensors replaced."""
        if isinstance(value, self._torch.Tensor):
            return value.to(device, copy=True)  # a loader may use the memory of a batch again
        if isinstance(value, dict):
            return {key: self._move(item, device) for key, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._move(item, device) for item in value))
        if isinstance(value, list | tuple):
            return type(value)(self._move(item, device) for item in value)
        for name, part in attributes_of(value):
            moved = self._move(part, device)
            if moved is not part:
                object.__setattr__(value, name, moved)
        return value


def _kind_of(loader: Any) -> _Kind:
    return type(loader.dataset), _length(loader)


def _length(loader: Any) -> float:
    try:
        return float(len(loader))
    except TypeError:
        return math.inf
