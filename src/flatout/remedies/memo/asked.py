"""What a call of the function hangs on, as one key: its arguments, what else it reads, and torch's settings."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from .content import Contents
from .loaded_names import Loaded, body_of
from .purity import Impure, Names, Path, reads_of
from .reading import refusal_of_class, value_at, value_of_name
from .surroundings import settings


@dataclass(frozen=True, slots=True)
class Asked:
    """`large` are rows of bytes that the key holds by sums alone; `values` all that the key was made of."""

    key: Hashable
    large: tuple[Any, ...]
    key_bytes: int
    values: list[Any]


class Asking:
    """Of one function, for objects of one class where it is a method. Raises Impure when it is made."""

    def __init__(self, torch: Any, function: Any, owner: type | None) -> None:
        self._torch = torch
        self._owner = owner
        self._signature = inspect.signature(function)
        reads = reads_of(body_of(function, owner))
        self._has_products = reads.has_products
        self._of_self = sorted(reads.of_self)
        self._of_names = _loaded(reads.of_names)
        self._of_functions = _loaded(reads.of_functions)
        self._of_methods = sorted(reads.of_methods)
        self._looked_into = self._functions()
        self._contents = Contents(torch, lambda kind: refusal_of_class(kind, reads.attributes))

    def asked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Asked | None:
        """None where this call is not to be kept. Raises Unkeyable and Impure."""
        around = settings(self._torch, self._has_products)
        if around is None:
            return None
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:
            return None  # the call itself will say what is wrong with it
        bound.apply_defaults()
        self._check_functions()
        values = list(bound.arguments.items())
        if self._owner is not None:
            _, own = values.pop(0)
            values += [(".".join(("self", *path)), value_at(self._torch, own, path)) for path in self._of_self]
        values += [(".".join(path), value_of_name(self._torch, names, path)) for names, path in self._of_names]
        key = self._contents.key(values)
        large = tuple(self._contents.large)
        return Asked((self._owner, around, key), large, self._contents.bytes, [value for _, value in values])

    def _functions(self) -> list[tuple[str, Any]]:
        """Those that were looked into, by their names."""
        plain = [(".".join(path), value_of_name(self._torch, names, path)) for names, path in self._of_functions]
        return plain + [(name, inspect.getattr_static(self._owner, name, None)) for name in self._of_methods]

    def _check_functions(self) -> None:
        """Somebody may have put another in the place of one."""
        for (name, before), (_, now) in zip(self._looked_into, self._functions(), strict=True):
            if before is not now:
                raise Impure(f"{name} is another function than it was")


def _loaded(reads: Sequence[tuple[Names, Path]]) -> list[tuple[Loaded, Path]]:
    return [(names, path) for names, path in reads if isinstance(names, Loaded)]
