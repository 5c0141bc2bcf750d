"""The code cells of a notebook as one text, and the way back from its lines to cells."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass

from flatout.errors import FlatoutError

_MAGIC = re.compile(r"^(\s*)[%!?]|^(\s*)\S.*\?\s*$")
# Cells in another language.
_FOREIGN = re.compile(r"^\s*%%(?!time|timeit|capture|prun)")
_SHELL = re.compile(r"^\s*%%(bash|sh|script)\b")


@dataclass(frozen=True, slots=True)
class Cells:
    """`starts[i]` is the first line of the text that belongs to cell `numbers[i]`."""

    text: str
    starts: tuple[int, ...]
    numbers: tuple[int, ...]
    # Lines for the shell, by the line of the text that stands in their place.
    commands: tuple[tuple[int, str], ...] = ()

    def place(self, line: int) -> tuple[int, int]:
        """Cell and line within it."""
        at = max(0, bisect_right(self.starts, line) - 1)
        return self.numbers[at], line - self.starts[at] + 1


def cells_of(raw: str) -> Cells:
    """Raises FlatoutError if it is no notebook of Python."""
    try:
        notebook = json.loads(raw)
        language = notebook.get("metadata", {}).get("kernelspec", {}).get("language", "python")
        cells = [(number, cell) for number, cell in enumerate(notebook["cells"], 1) if cell["cell_type"] == "code"]
        sources = [(number, "".join(cell["source"])) for number, cell in cells]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FlatoutError("is no notebook that can be read") from error
    if str(language).lower() != "python":
        return Cells("", (1,), (1,))
    lines: list[str] = []
    starts, numbers = [], []
    commands: list[tuple[int, str]] = []
    for number, source in sources:
        starts.append(len(lines) + 1)
        numbers.append(number)
        is_shell = bool(_SHELL.match(source))
        commands += [
            (line, text.strip().lstrip("!"))
            for line, text in enumerate(source.split("\n"), len(lines) + 1)
            if is_shell or text.lstrip().startswith("!")
        ]
        lines += _plain(source)
    return Cells("\n".join(lines) + "\n", tuple(starts) or (1,), tuple(numbers) or (1,), tuple(commands))


def _plain(source: str) -> list[str]:
    """Magics and shell lines are no Python; a statement that does nothing takes their place."""
    lines = source.split("\n")
    if lines and _FOREIGN.match(lines[0]):
        return [""] * len(lines)
    plain = []
    for line in lines:
        found = _MAGIC.match(line)
        plain.append(f"{found[1] or found[2] or ''}pass" if found and not line.lstrip().startswith("#") else line)
    return plain
