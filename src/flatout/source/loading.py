"""Reads a project from disk, or from texts as cases and tests write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath

from flatout.errors import FlatoutError
from flatout.source import files
from flatout.source.aside import checked_aside
from flatout.source.module import Module
from flatout.source.notebook import cells_of
from flatout.source.project import Project

# Files with none of these hold no training, and nothing that feeds one; their trees are not kept.
_OF_INTEREST = ("backward", "DataLoader", "training_step", "optimizer", "add_argument", "detect_anomaly")


def load(paths: Sequence[Path], exclude: Iterable[str] = ()) -> Project:
    """Read all files below these paths. What cannot be read leaves a line in `trouble`."""
    found = files.find(paths, exclude)
    modules, trouble = [], []
    for path, shown in found.code:
        try:
            text = files.read_code(path)
            cells = cells_of(text) if path.suffix == ".ipynb" else None
        except FlatoutError as error:
            trouble.append(f"{shown}: {error}")
            continue
        modules.append(Module(shown, _dotted_name(path), text if cells is None else cells.text, cells))
    of_interest = [one for one in modules if any(word in one.text for word in _OF_INTEREST)]
    known = {id(one) for one in of_interest}
    wait = checked_aside([one for one in modules if id(one) not in known])
    for module in of_interest:
        assert module.tree is not None  # parsed now, so that its errors are known
    wait()
    return Project(modules, [shown for _, shown in found.configs], trouble=trouble)


def with_bytes(project: Project, changed: Mapping[str, bytes]) -> Project:
    """The same project with other contents of some of its files, as they would be read from disk."""
    modules = []
    for module in project.modules:
        if module.shown in changed:
            text = files.decoded(changed[module.shown])
            cells = cells_of(text) if module.cells is not None else None
            module = Module(module.shown, module.name, text if cells is None else cells.text, cells)
            assert module.tree is not None  # parsed now, so that its errors are known
        modules.append(module)
    configs = {name: files.decoded_config(data) for name, data in changed.items() if name in project.configs}
    return Project(
        modules,
        project.configs,
        lambda name: configs.get(name) or project.read(name),
        project.trouble,
        project.workers,
    )


def of_texts(texts: Mapping[str, str]) -> Project:
    """A project of texts by their file names, as cases and tests write them."""
    modules = [Module(name, _dotted_name(PurePath(name)), text) for name, text in texts.items() if name.endswith(".py")]
    for module in modules:
        assert module.tree is not None  # parsed now, so that its errors are known
    configs = [name for name in texts if name.endswith(files.CONFIGS)]
    return Project(modules, configs, lambda name: texts.get(name, ""))


def _dotted_name(path: PurePath) -> str:
    """From the top: an import may begin at any folder, and `from ..data import` has to find its way back."""
    parts = list(path.with_suffix("").parts)
    parts = [part for part in parts if part.isidentifier() or part == parts[-1]]
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)
