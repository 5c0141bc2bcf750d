"""What an object holds that Python's attributes do not show: the state of types that are written in C.

`range(50)` and `range(50, 100)`, two tables of pandas, two compiled patterns: none has an attribute of its own. What
pickle would write of them tells them apart. What cannot be pickled (an open database) is told apart by a mark: it is
then equal to itself alone, in this process and in those forked from it.
"""

from __future__ import annotations

import io
import logging
import secrets
import threading
import weakref
from typing import Any

_HEAP, _IMMUTABLE = 1 << 9, 1 << 8  # Py_TPFLAGS_HEAPTYPE, Py_TPFLAGS_IMMUTABLETYPE
# Of a class made in Python: its dictionary and its weak references.
_USUAL_BYTES, _SLOT_BYTES = 16, 8
_marks: dict[int, tuple[weakref.ref[Any], str]] = {}
_GLIMPSED = 1024
_LOCKS = (type(threading.Lock()), type(threading.RLock()))


def has_hidden_state(kind: type) -> bool:
    return any(_is_of_c(one) for one in kind.__mro__ if one is not object)


def _is_of_c(kind: type) -> bool:
    if not kind.__flags__ & _HEAP or kind.__flags__ & _IMMUTABLE:
        return True
    slots = kind.__dict__.get("__slots__", ())
    own = _USUAL_BYTES + _SLOT_BYTES * (1 if isinstance(slots, str) else len(slots))
    return bool(kind.__basicsize__ - (kind.__base__ or object).__basicsize__ > own)


def hidden_parts(value: Any) -> tuple[Any, ...]:
    """Values that tell it from others of its type."""
    if isinstance(value, _LOCKS):
        return ()
    if isinstance(value, logging.Logger):
        return (value.name,)
    if isinstance(value, io.IOBase) and not isinstance(value, io.BytesIO | io.StringIO):
        return (str(getattr(value, "name", "")),)
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:  # whatever a type may say that cannot be pickled
        return (mark_of(value),)
    if isinstance(reduced, str):
        return (reduced,)
    made, arguments, *rest = reduced
    # A state, and what has to be added item by item.
    items = [None if part is None else list(part) for part in rest[1:3]]
    return (getattr(made, "__qualname__", type(made).__name__), arguments, rest[:1], items)


def mark_of(value: Any) -> str:
    """The same for this object as long as it lives, and for no other."""
    found = _marks.get(id(value))
    if found is not None and found[0]() is value:
        return found[1]
    mark = secrets.token_hex(8)
    number = id(value)
    try:
        _marks[number] = (weakref.ref(value, lambda gone: _forget(number, gone)), mark)
    except TypeError:
        pass  # then it is new every time
    return mark


def glimpse(array: Any) -> str:
    """Of a large array: what torch counts its changes by; of numpy's, which has no such count, some of its values."""
    if hasattr(array, "_version"):
        return f"{array.data_ptr()} {array._version}"
    some = array.reshape(-1) if array.flags.c_contiguous else array
    return f"{array.ctypes.data} {some[:: max(1, len(some) // _GLIMPSED)].tobytes().hex()}"


def _forget(number: int, gone: Any) -> None:
    if number in _marks and _marks[number][0] is gone:
        del _marks[number]
