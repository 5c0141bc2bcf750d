"""Runs a training script on batches that already lie on the device: what it could reach with a perfect loader.

    python replay.py [--batches 8] SCRIPT ARGS...

From the first backward pass on, the loader it trains from gives the same few batches over and over, as often as it
would have given its own. The script is not changed: its `.to(device)` finds the tensors there.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.utils.data import DataLoader, dataloader

_ITERATORS: Any = (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter)


def to_device(value: Any, device: torch.device) -> Any:
    """The same value with every tensor in it on the device; objects keep their type and have their tensors replaced."""
    if isinstance(value, torch.Tensor):
        return value.to(device, copy=True)  # a loader may use the memory of a batch again
    if isinstance(value, dict):
        return {key: to_device(item, device) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(item, device) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(to_device(item, device) for item in value)
    names = list(getattr(value, "__dict__", ())) or [n for n in getattr(value, "__slots__", ()) if hasattr(value, n)]
    for name in names:
        moved = to_device(getattr(value, name), device)
        if moved is not getattr(value, name):
            object.__setattr__(value, name, moved)
    return value


class Replay:
    """Remembers which loader feeds the training, and gives its batches again."""

    def __init__(self, batches: int) -> None:
        self._wanted = batches
        self._kept: list[Any] = []
        self._given = 0
        # Numbers and weak references: a loader kept alive to the end of the process makes its workers end slowly there,
        # 5 s each where they are persistent and pinned.
        self._last = self._training = 0
        self._loader_of: WeakValueDictionary[int, DataLoader[Any]] = WeakValueDictionary()

    def install(self) -> None:
        make, backward = DataLoader.__iter__, torch.autograd.backward

        def iterate(loader: DataLoader[Any]) -> Any:
            iterator = make(loader)
            self._loader_of[id(iterator)] = loader
            return iterator

        def first_backward(*args: Any, **kwargs: Any) -> Any:
            if not self._training:
                self._training = self._last
            return backward(*args, **kwargs)

        for owner, name, ours in (
            (DataLoader, "__iter__", iterate),
            (torch.autograd, "backward", first_backward),
            *((kind, "_next_data", self._replaced(kind._next_data)) for kind in _ITERATORS),
        ):
            setattr(owner, name, ours)

    def _replaced(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def next_data(iterator: Any) -> Any:
            loader = self._loader_of.get(id(iterator))
            if not torch.is_grad_enabled() or loader is None:
                return original(iterator)
            self._last = id(loader.dataset)  # some scripts build a new loader every epoch
            if id(loader.dataset) != self._training:
                return original(iterator)
            if len(self._kept) < self._wanted:
                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                self._kept.append(to_device(original(iterator), device))
                return self._kept[-1]
            if iterator._num_yielded >= len(loader):
                raise StopIteration
            self._given += 1
            return self._kept[self._given % len(self._kept)]

        return next_data


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("script", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    Replay(options.batches).install()
    sys.argv = options.script
    sys.path[0] = os.path.dirname(os.path.abspath(options.script[0]))
    runpy.run_path(options.script[0], run_name="__main__")
