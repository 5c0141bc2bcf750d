"""What takes the place of a method written in C: it is called in its stead and counts as equal to it.

A tensor subclass learns from `__torch_function__` which method was called, by the object that lies under the method's
public name, and looks it up in tables of the methods it knows. Such a table may be from before our patch (torch's own
for lazy modules) or from after it (torchvision's for its tensors): in both, ours must be found as the method itself.
"""

from __future__ import annotations

from types import MethodDescriptorType, MethodType, WrapperDescriptorType
from typing import Any


def is_written_in_c(method: Any) -> bool:
    return isinstance(method, MethodDescriptorType | WrapperDescriptorType | StandIn)


class StandIn:
    """`call` in the place of `original`."""

    # Not in the dictionary: `functools.update_wrapper` copies that of one stand-in into the one wrapped around it.
    __slots__ = ("__dict__", "_call", "_known_as")

    def __init__(self, original: Any, call: Any) -> None:
        self._call = call
        self._known_as: Any = original._known_as if isinstance(original, StandIn) else original

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Where methods are told from functions by their kind, as torch.compile does, it is a method written in C."""
        return type(self._known_as)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self._call, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return bool(self._known_as == (other._known_as if isinstance(other, StandIn) else other))

    def __hash__(self) -> int:
        return hash(self._known_as)

    def __repr__(self) -> str:
        return repr(self._known_as)
