"""What may be written behind a remedy's name, in a profile or on the command line."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", re.I)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class Value(ABC):
    """Reads what the user wrote: a string of the command line, or what TOML made of it."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What may be written, for a message and the docs."""

    @abstractmethod
    def read(self, written: object) -> Any:
        """The value; raises ValueError with a reason."""

    def _refusal(self, written: object) -> ValueError:
        return ValueError(f"must be {self.words}, got {written!r}")


def _lower(written: object) -> str:
    return str(written).strip().lower()


@dataclass(frozen=True, slots=True)
class Flag(Value):
    """On or off; off is the same as not naming the remedy. `also` is one more word, for another way of being on."""

    also: str | None = None

    @property
    def words(self) -> str:
        return "true or false" if self.also is None else f'true, false or "{self.also}"'

    def read(self, written: object) -> bool | str:
        text = _lower(written)
        if self.also is not None and text == self.also:
            return text
        if text in _YES + _NO:
            return text in _YES
        raise self._refusal(written)


@dataclass(frozen=True, slots=True)
class Count(Value):
    """A whole number within limits, or "auto" where the remedy can find it itself."""

    least: int
    most: int
    auto: bool = False

    @property
    def words(self) -> str:
        return f"a whole number from {self.least} to {self.most}" + (' or "auto"' if self.auto else "")

    def read(self, written: object) -> int | str:
        if self.auto and (written is True or _lower(written) == "auto"):
            return "auto"
        is_whole = not isinstance(written, bool | float) and re.fullmatch(r"\s*[+-]?\d+\s*", str(written))
        if not is_whole or not self.least <= int(str(written)) <= self.most:
            raise self._refusal(written)
        return int(str(written))


@dataclass(frozen=True, slots=True)
class Choice(Value):
    """One of a few words; `true` stands for the first."""

    names: tuple[str, ...]

    @property
    def words(self) -> str:
        return " or ".join(f'"{name}"' for name in self.names)

    def read(self, written: object) -> str | bool:
        if _lower(written) in ("true", "false"):
            return self.names[0] if _lower(written) == "true" else False
        if str(written) in self.names:
            return str(written)
        raise self._refusal(written)


@dataclass(frozen=True, slots=True)
class Size(Value):
    """Bytes: 20GB, 512MiB, a plain number; "auto" lets the remedy decide."""

    @property
    def words(self) -> str:
        return 'a size such as "20GB", or "auto"'

    def read(self, written: object) -> int | str:
        if _lower(written) in ("auto", "true"):
            return "auto"
        found = _SIZE.fullmatch(str(written).strip())
        if found is None or isinstance(written, bool):
            raise self._refusal(written)
        return int(float(found.group(1)) * _UNITS[found.group(2).lower()])


@dataclass(frozen=True, slots=True)
class Text(Value):
    """Free text of one form, checked by a pattern."""

    pattern: str
    form: str

    @property
    def words(self) -> str:
        return self.form

    def read(self, written: object) -> str:
        if isinstance(written, str) and re.fullmatch(self.pattern, written):
            return written
        raise self._refusal(written)


@dataclass(frozen=True, slots=True)
class Options(Value):
    """Several named values, as a TOML table or `name=value,name=value`.

    `true` stands for all their defaults, a bare value for the first of them.
    """

    fields: dict[str, Value]
    defaults: dict[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        first = next(iter(self.fields))
        return f"true, {first}'s value, or a table of " + ", ".join(
            f"{name} ({value.words})" for name, value in self.fields.items()
        )

    def read(self, written: object) -> dict[str, Any] | bool:
        if _lower(written) in ("true", "false"):
            return dict(self.defaults) if _lower(written) == "true" else False
        read = dict(self.defaults)
        for name, item in self._pairs(written):
            if name not in self.fields:
                raise ValueError(f"has no option {name!r}; it has {', '.join(self.fields)}")
            try:
                read[name] = self.fields[name].read(item)
            except ValueError as error:
                raise ValueError(f"{name} {error}") from None
        return read

    def _pairs(self, written: object) -> list[tuple[str, object]]:
        if isinstance(written, dict):
            return [(str(name), value) for name, value in written.items()]
        if "=" not in str(written):
            return [(next(iter(self.fields)), written)]
        pairs = [part.partition("=") for part in str(written).split(",")]
        if not all(equals for _, equals, _ in pairs):
            raise self._refusal(written)
        return [(name.strip(), item.strip()) for name, _, item in pairs]
