"""May a stream be gone through again by the same worker? A new one would begin with what the script holds.

An IterableDataset is not read to find out: what is taken from it may be gone. Its code is looked at instead.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

_STORES = ("STORE_ATTR", "DELETE_ATTR")
_MOST = 64


def is_stream(loader: Any) -> bool:
    from torch.utils.data import IterableDataset

    return isinstance(loader.dataset, IterableDataset)


def why_not_again(dataset: Any) -> str | None:
    """Why a second pass in the same process may not be as the first, None where nothing speaks for that."""
    for name, value in list(getattr(dataset, "__dict__", {}).items())[:_MOST]:
        if _goes_on(value):
            return f"its stream goes on where it was left ({name}), and new workers begin anew"
    for name, code in _called(type(dataset), "__iter__"):
        stored = next((str(step.argval) for step in dis.get_instructions(code) if step.opname in _STORES), None)
        if stored is not None:
            return f"its dataset changes as it is read ({stored} in {name}), and new workers begin anew"
    return None


def _goes_on(value: Any) -> bool:
    """Iterators, files, and generators of random numbers stand somewhere."""
    return any(hasattr(value, name) for name in ("__next__", "getstate", "bit_generator", "_bit_generator")) or (
        hasattr(value, "initial_seed") and hasattr(value, "get_state")
    )


def _called(kind: type, first: str) -> Iterator[tuple[str, CodeType]]:
    """A method and those of the same class that it names, and so on, with what is defined inside them."""
    waiting, seen = [first], {first}
    while waiting:
        name = waiting.pop()
        for code in _codes(getattr(getattr(kind, name, None), "__code__", None)):
            yield name, code
            more = [called for called in code.co_names if isinstance(getattr(kind, called, None), FunctionType)]
            waiting += [called for called in more if called not in seen]
            seen.update(more)


def _codes(code: Any) -> Iterator[CodeType]:
    if isinstance(code, CodeType):
        yield code
        for constant in code.co_consts:
            yield from _codes(constant)
