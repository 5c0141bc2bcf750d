"""Runs a training script and counts what it does per step: calls of tensor methods and operations, by line.

    python counted.py OUT.json SCRIPT ARGS...

On a CPU nothing ever waits for a device, so waits cannot be timed here; but the calls that would wait are all there.
`_local_scalar_dense` is what item(), bool(), int() and float() of a tensor come down to.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
from collections import Counter
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

steps = 0
operations: Counter[str] = Counter()
calls: Counter[str] = Counter()
lines: Counter[str] = Counter()


def _caller(project: str) -> str:
    """The innermost line of the project's own code."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith(project):
            return f"{os.path.relpath(frame.f_code.co_filename, project)}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket).removeprefix("aten.")
        operations[name] += 1
        if name == "_local_scalar_dense":
            lines[f"{name} {_caller(PROJECT)}"] += 1
        # An index that is a mask has a size only the device knows.
        if name in ("index", "index_put_", "_index_put_impl_"):
            masks = [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]
            if masks:
                operations["mask"] += 1
                lines[f"mask {_caller(PROJECT)}"] += 1
        return func(*args, **(kwargs or {}))


class _Calls(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        calls[name] += 1
        if name in ("to", "item", "cpu", "cuda", "numpy", "tolist", "backward"):
            lines[f"{name} {_caller(PROJECT)}"] += 1
        return func(*args, **(kwargs or {}))


def _stepped(*_: Any) -> None:
    global steps
    steps += 1


if __name__ == "__main__":
    out, script, *rest = sys.argv[1:]
    PROJECT = os.path.dirname(os.path.abspath(script)) + os.sep
    sys.argv = [script, *rest]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    register_optimizer_step_post_hook(_stepped)
    try:
        with _Calls(), _Operations():
            runpy.run_path(script, run_name="__main__")
    finally:
        with open(out, "w") as file:
            json.dump({"steps": steps, "operations": operations, "calls": calls, "lines": lines}, file)
        # An interpreter that ends looks through all that lives, which takes most of a second after importing torch.
        gc.freeze()
