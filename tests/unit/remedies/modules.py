"""Modules of a user's, written to a file and loaded from there: their source can be read as in a real script."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

Load = Callable[[str], ModuleType]
_numbers = itertools.count()


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Load this text as a module that can be found by its name; it is gone after the test."""
    names = []

    def loaded(text: str) -> ModuleType:
        name = f"user_module_{next(_numbers)}"
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        names.append(name)
        spec.loader.exec_module(module)
        return module

    yield loaded
    for name in names:
        del sys.modules[name]
