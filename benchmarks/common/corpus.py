"""The scripts of `benchmarks/corpus`, and what each says of itself in its docstring."""

from __future__ import annotations

import ast
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.common.child import ROOT

CORPUS = ROOT / "benchmarks" / "corpus"
MARK = "# guilty"
_SHARED = {"making.py", "__init__.py"}

Needs = Literal["cpu", "gpu", "either"]


@dataclass(frozen=True, slots=True)
class Script:
    """A training script. The first of `codes` was planted; the others name the same cause. A control has none."""

    name: str
    path: Path
    codes: tuple[str, ...]
    needs: Needs
    # Processors without which the problem does not arise.
    cpus: int = 1
    # Whether repairing it makes it faster, and whether there is a line to blame.
    gains: bool = True
    has_line: bool = True
    arguments: tuple[str, ...] = ()
    # Of `flatout run`, without which the problem is not looked for.
    options: tuple[str, ...] = ()
    # Lines that may be blamed, by file name.
    guilty: frozenset[tuple[str, int]] = frozenset()

    @property
    def is_control(self) -> bool:
        return not self.codes

    @property
    def family(self) -> str:
        """The family of the planted problem: the letters of its code."""
        return self.codes[0][:2] if self.codes else "control"

    def suits(self, device: str) -> bool:
        """Whether it is meant for `device`: "cpu" or "cuda"."""
        return self.needs in ("either", "gpu" if device == "cuda" else "cpu")


def scripts(folder: Path = CORPUS) -> list[Script]:
    """All of them, by name: single files, and folders with a `train.py`."""
    folder = folder.resolve()  # scripts run in a folder of their own
    files = [path for path in folder.glob("*.py") if path.name not in _SHARED]
    return sorted((read(path) for path in [*files, *folder.glob("*/train.py")]), key=lambda script: script.name)


def read(path: Path) -> Script:
    """One script, from its docstring's `key: value` lines and its marks."""
    text = path.read_text()
    facts = _facts(ast.get_docstring(ast.parse(text)) or "")
    unknown = set(facts) - _KEYS
    if unknown or not {"expects", "needs"} <= set(facts):
        raise ValueError(f"{path}: its docstring must have expects and needs, and of others only {sorted(_KEYS)}")
    if facts["needs"] not in ("cpu", "gpu", "either"):
        raise ValueError(f"{path}: needs is cpu, gpu or either, not {facts['needs']!r}")
    in_folder = path.name == "train.py"
    files = sorted(path.parent.glob("*.py")) if in_folder else [path]
    expects = facts["expects"]
    return Script(
        name=path.parent.name if in_folder else path.stem,
        path=path,
        codes=() if expects == "none" else tuple(code.strip() for code in expects.split(",")),
        needs=facts["needs"],  # type: ignore[arg-type]
        cpus=int(facts.get("cpus", 1)),
        gains=facts.get("gain") != "no",
        has_line=facts.get("line") != "no",
        arguments=tuple(shlex.split(facts.get("arguments", ""))),
        options=tuple(shlex.split(facts.get("options", ""))),
        guilty=frozenset(mark for file in files for mark in marks(file.name, file.read_text())),
    )


_KEYS = {"expects", "needs", "cpus", "gain", "line", "arguments", "options"}


def marks(name: str, text: str) -> list[tuple[str, int]]:
    """The marked lines of a file."""
    return [(name, number) for number, line in enumerate(text.splitlines(), 1) if line.rstrip().endswith(MARK)]


def _facts(docstring: str) -> dict[str, str]:
    """The `key: value` lines of the last paragraph."""
    lines = docstring.strip().split("\n\n")[-1].splitlines()
    pairs = [line.split(": ", 1) for line in lines if ": " in line]
    return {key.strip(): value.strip() for key, value in pairs if key.strip().isidentifier()}
