"""Runs at the start of every Python process of the tests: torch's compiler is imported only by those who compile.

The first step of an optimizer makes torch import `torch._dynamo`, to keep the compiler out of its methods. That takes
two thirds of the processor time of a short training, and there are hundreds of these. As long as nothing else has
imported the compiler it cannot trace anything: the methods are called as they are.

The garbage collector finds nothing while torch is imported, nor in what is left when the process ends: that takes a
fifth of the processor time of a process that only imports torch.
"""

from __future__ import annotations

import atexit
import gc
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

# By module, what is run in it at the end of its import: it replaces the decorators by which torch imports its compiler.
# Run there, it counts as torch's code where flatout tells a script's lines from a library's.
_COMMON = """
import functools as _functools, sys as _sys

def _is_compiler_there():
    return hasattr(_sys.modules.get("torch._dynamo"), "graph_break")
"""
_REPLACED = {
    "torch._compile": """
_always_disable = _disable_dynamo

def _disable_dynamo(fn=None, recursive=True):
    if fn is None:
        return _functools.partial(_disable_dynamo, recursive=recursive)
    disabled = _always_disable(fn, recursive)

    @_functools.wraps(fn)
    def call(*args, **kwargs):
        return (disabled if _is_compiler_there() else fn)(*args, **kwargs)

    return call
""",
    "torch.optim.optimizer": """
_always_break = _use_grad_for_differentiable

def _use_grad_for_differentiable(step):
    breaking = _always_break(step)

    @_functools.wraps(step)
    def call(*args, **kwargs):
        if _is_compiler_there():
            return breaking(*args, **kwargs)
        with torch.set_grad_enabled(args[0].defaults["differentiable"]):
            return step(*args, **kwargs)

    return call
""",
    # Nearly the last thing that `import torch` imports.
    "torch._meta_registrations": """
import gc as _gc
_gc.enable()
""",
}


class _Finder:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name == "torch" and gc.isenabled():
            gc.disable()
            _disabled.append(name)
        if name not in _REPLACED or (name == "torch._meta_registrations" and not _disabled):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        exec(compile(_COMMON + _REPLACED[module.__name__], self.path, "exec"), vars(module))


# The import that switched the collector off: a process that came without one goes on without.
_disabled: list[str] = []
sys.meta_path.insert(0, _Finder())
# Runs last of all: what is there at the end stays where it is.
atexit.register(gc.freeze)
