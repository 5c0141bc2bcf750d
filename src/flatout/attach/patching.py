"""Replace attributes of classes and modules, and put the very same originals back."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodDescriptorType, MethodType, WrapperDescriptorType
from typing import Any

_INHERITED = object()


class Patches:
    """The replacements made in this process, newest last.

    `mark` names whose they are: what carries it already is not replaced again, what carries another's is wrapped.
    """

    def __init__(self, mark: str = "__flatout__") -> None:
        self._mark = mark
        self._made: list[tuple[Any, str, Any, Any]] = []

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Set `owner.name` to `make(original)`. Absent names and names already replaced are left alone."""
        current = getattr(owner, name, None)
        if current is None or getattr(current, self._mark, False):
            return
        wrapper = make(current)
        if isinstance(current, MethodDescriptorType | WrapperDescriptorType | CMethodWrapper):
            wrapper = CMethodWrapper(current, wrapper)
        functools.update_wrapper(wrapper, current)
        setattr(wrapper, self._mark, True)
        self.put(owner, name, wrapper)

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute to this very value."""
        self._made.append((owner, name, owner.__dict__.get(name, _INHERITED), value))
        setattr(owner, name, value)

    def restore(self) -> None:
        """Undo all. Where someone else has wrapped ours since, theirs stays; ours then only passes through."""
        for owner, name, before, wrapper in reversed(self._made):
            if owner.__dict__.get(name) is not wrapper:
                continue
            if before is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._made.clear()


def guard(call: Callable[[], object], trouble: Callable[[Exception], None]) -> None:
    """Call something of ours from within a patch: what it raises never reaches the script."""
    try:
        call()
    except Exception as error:
        trouble(error)


class CMethodWrapper:
    """`call` in the place of `original`, a method written in C, and equal to it.

    A tensor subclass learns from `__torch_function__` which method was called, by the object under the method's public
    name, and looks it up in tables of the methods it knows. Such a table may be older than our patch (torch's own for
    lazy modules) or newer (torchvision's for its tensors): in both, ours must be found as the method itself.
    """

    # Not in the dictionary: `functools.update_wrapper` copies that of one stand-in into the one wrapped around it.
    __slots__ = ("__dict__", "_call", "_known_as")

    def __init__(self, original: Any, call: Any) -> None:
        self._call = call
        self._known_as: Any = original._known_as if isinstance(original, CMethodWrapper) else original

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Where methods are told from functions by their kind, as torch.compile does, it is a method written in C."""
        return type(self._known_as)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self._call, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return bool(self._known_as == (other._known_as if isinstance(other, CMethodWrapper) else other))

    def __hash__(self) -> int:
        return hash(self._known_as)

    def __repr__(self) -> str:
        return repr(self._known_as)


# Keeping our own functions away from torch.compile: a function called from within a compiled region is compiled too.
# Ours must not be, as that would cost compilations and graph breaks that the script does not have on its own.


def hide_from_compiler(torch: Any, package: str) -> None:
    """Mark the code of every function in `package` as not to be compiled."""
    skip_code = _marker(getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None))
    if skip_code is None:
        return
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(package + "."):
            for code in _codes_of(vars(module).values(), name):
                skip_code(code)


def _marker(eval_frame: Any) -> Callable[[CodeType], object] | None:
    """Torch's way to mark code, by its C part alone: importing torch._dynamo would take seconds."""
    if hasattr(eval_frame, "set_code_exec_strategy"):
        action = eval_frame._FrameAction
        strategy = eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
        return lambda code: eval_frame.set_code_exec_strategy(code, strategy)
    marker: Callable[[CodeType], object] | None = getattr(eval_frame, "skip_code", None)
    return marker


def _codes_of(values: Any, module: str) -> Iterator[CodeType]:
    for value in values:
        if isinstance(value, FunctionType):
            yield from _codes_within(value.__code__)
        elif isinstance(value, type) and value.__module__ == module:
            yield from _codes_of(vars(value).values(), module)


def _codes_within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_within(constant)
