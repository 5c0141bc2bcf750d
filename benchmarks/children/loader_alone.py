"""Runs a training script up to its first backward pass, then only its loader: what it could reach with a perfect GPU.

    python loader_alone.py --seconds 8 --result FILE SCRIPT ARGS...

The loader measured is the one whose batch the first backward pass was about. Nothing but its batches is asked for, one
after the other; a new epoch begins when one ends. Writes {"batches", "samples", "seconds"} and ends the process.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, dataloader

from flatout.attach.batch import find_samples

Iterator = dataloader._BaseDataLoaderIter


class LoaderAlone:
    def __init__(self, seconds: float, result: str) -> None:
        self._seconds = seconds
        self._result = result
        self._last: Any = None
        self._loader_of: dict[int, DataLoader[Any]] = {}

    def install(self) -> None:
        make, step = DataLoader.__iter__, Iterator.__next__

        def iterate(loader: DataLoader[Any]) -> Any:
            iterator = make(loader)
            self._loader_of[id(iterator)] = loader
            return iterator

        def advance(iterator: Any) -> Any:
            if torch.is_grad_enabled():
                self._last = iterator
            return step(iterator)

        for owner, name, ours in (
            (DataLoader, "__iter__", iterate),
            (Iterator, "__next__", advance),
            (torch.autograd, "backward", self._measure),
        ):
            setattr(owner, name, ours)

    def _measure(self, *_: Any, **__: Any) -> None:
        iterator = self._last
        loader = self._loader_of[id(iterator)]
        # What the workers have made in advance is not their pace.
        for _warming in range(max(1, 2 * loader.num_workers)):
            iterator, _batch = self._next(iterator, loader)
        batches = samples = 0
        begun = time.perf_counter()
        while (seconds := time.perf_counter() - begun) < self._seconds or batches < 2:
            iterator, batch = self._next(iterator, loader)
            batches += 1
            samples += _size(batch)
        with open(self._result, "w") as file:
            json.dump({"batches": batches, "samples": samples, "seconds": seconds}, file)
        # Neither the script nor its worker processes are of any further use.
        for worker in getattr(iterator, "_workers", ()):
            worker.terminate()
        sys.stdout.flush()
        os._exit(0)

    def _next(self, iterator: Any, loader: DataLoader[Any]) -> tuple[Any, Any]:
        try:
            return iterator, next(iterator)
        except StopIteration:
            iterator = iter(loader)
            return iterator, next(iterator)


def _size(batch: Any) -> int:
    try:
        return find_samples(batch)[1]
    except Exception:
        return 1  # a batch whose size nobody can tell is one sample


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--result", required=True)
    parser.add_argument("script", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    LoaderAlone(options.seconds, options.result).install()
    sys.argv = options.script
    sys.path[0] = os.path.dirname(os.path.abspath(options.script[0]))
    runpy.run_path(options.script[0], run_name="__main__")
