"""Runs at the start of every Python process of the tests: torch's compiler is imported only by those who compile.

The first step of an optimizer makes torch import `torch._dynamo`, to keep the compiler out of its methods. That takes
two thirds of the processor time of a short training, and there are hundreds of these. As long as nothing else has
imported the compiler it cannot trace anything: the methods are called as they are.
"""

from __future__ import annotations

import functools
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any


def _is_compiler_there() -> bool:
    return hasattr(sys.modules.get("torch._dynamo"), "graph_break")


def _disable_dynamo(original: Any, fn: Any = None, recursive: bool = True) -> Any:
    if fn is None:
        return functools.partial(_disable_dynamo, original, recursive=recursive)
    disabled = original(fn, recursive)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (disabled if _is_compiler_there() else fn)(*args, **kwargs)

    return call


def _use_grad_for_differentiable(original: Any, step: Any) -> Any:
    use_grad = original(step)

    @functools.wraps(step)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _is_compiler_there():
            return use_grad(*args, **kwargs)
        with sys.modules["torch"].set_grad_enabled(args[0].defaults["differentiable"]):
            return step(*args, **kwargs)

    return call


# Decorators by which torch imports its compiler, and what stands before them.
_REPLACED = {"torch._compile": _disable_dynamo, "torch.optim.optimizer": _use_grad_for_differentiable}


class _Finder:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in _REPLACED:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        replacement = _REPLACED[module.__name__]
        name = replacement.__name__
        setattr(module, name, functools.partial(replacement, getattr(module, name)))


sys.meta_path.insert(0, _Finder())
