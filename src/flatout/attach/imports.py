"""Call back after a module has been imported, without importing it ourselves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], object]


class _Watcher:
    """First on sys.meta_path; finds nothing itself, only slips a callback behind the real loader."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callback]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        callbacks = self.waiting.pop(name, None)
        if callbacks is None:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                _call_after(spec, callbacks)
                return spec
        # Not there now; it may be installed or put on the path later.
        self.waiting[name] = callbacks
        return None


def _call_after(spec: ModuleSpec, callbacks: Sequence[Callback]) -> None:
    loader: Any = spec.loader
    original = getattr(loader, "exec_module", None)
    if original is None:
        return

    def exec_module(module: ModuleType) -> None:
        # Back to the class's own method first: the loader object stays in module.__spec__ for good.
        del loader.exec_module
        original(module)
        for callback in callbacks:
            _quietly(callback, module)

    try:
        loader.exec_module = exec_module
    except AttributeError:
        pass


def _quietly(callback: Callback, module: ModuleType) -> None:
    try:
        callback(module)
    except Exception as error:
        sys.stderr.write(f"flatout: could not watch {module.__name__} ({type(error).__name__}: {error})\n")


_watcher = _Watcher()


def after_import(name: str, callback: Callback) -> None:
    """Call `callback(module)` once `name` is imported; at once if it already is."""
    module = sys.modules.get(name)
    is_importing = getattr(getattr(module, "__spec__", None), "_initializing", False)
    if module is not None and not is_importing:
        _quietly(callback, module)
        return
    _watcher.waiting.setdefault(name, []).append(callback)
    if _watcher not in sys.meta_path:
        sys.meta_path.insert(0, _watcher)


def forget() -> None:
    """Stop waiting for any module."""
    _watcher.waiting.clear()
    if _watcher in sys.meta_path:
        sys.meta_path.remove(_watcher)
