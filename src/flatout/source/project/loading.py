"""Loads a project from disk, or from texts as cases and tests write them.

Files without a word about training are only checked for syntax errors, by a second process in a large tree.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath

from flatout.errors import FlatoutError
from flatout.source.project.project import Project
from flatout.source.syntax import files
from flatout.source.syntax.module import Module
from flatout.source.syntax.notebook import parse_notebook

# Files with none of these hold no training, and nothing that feeds one; their trees are not kept.
_OF_INTEREST = ("backward", "DataLoader", "training_step", "optimizer", "add_argument", "detect_anomaly")


def load(paths: Sequence[Path], exclude: Iterable[str] = ()) -> Project:
    """All files below these paths. Files that cannot be read leave a line in `trouble`."""
    found = files.find_files(paths, exclude)
    modules, trouble = [], []
    for path, shown in found.code:
        try:
            modules.append(_module(shown, _dotted_name(path), files.read_code(path), path.suffix == ".ipynb"))
        except FlatoutError as error:
            trouble.append(f"{shown}: {error}")
    of_interest = [module for module in modules if any(word in module.text for word in _OF_INTEREST)]
    known = {id(module) for module in of_interest}
    wait = start_syntax_check([other for other in modules if id(other) not in known])
    for module in of_interest:
        assert module.tree is not None  # parsed now, so that its errors are known
    wait()
    return Project(modules, [shown for _, shown in found.configs], trouble=trouble)


def _module(shown: str, name: str, text: str, is_notebook: bool) -> Module:
    cells = parse_notebook(text) if is_notebook else None
    return Module(shown, name, text if cells is None else cells.text, cells)


def with_contents(project: Project, changed: Mapping[str, bytes]) -> Project:
    """The same project with other bytes in some of its files."""
    modules = []
    for module in project.modules:
        if module.shown in changed:
            text = files.decode_source(changed[module.shown])
            module = _module(module.shown, module.name, text, module.cells is not None)
            assert module.tree is not None  # parsed now, so that its errors are known
        modules.append(module)
    configs = {name: files.decode_config(data) for name, data in changed.items() if name in project.configs}
    return Project(
        modules,
        project.configs,
        lambda name: configs.get(name) or project.read(name),
        project.trouble,
        project.workers,
    )


def load_texts(texts: Mapping[str, str]) -> Project:
    """A project of texts by their file names."""
    modules = [Module(name, _dotted_name(PurePath(name)), text) for name, text in texts.items() if name.endswith(".py")]
    for module in modules:
        assert module.tree is not None  # parsed now, so that its errors are known
    configs = [name for name in texts if name.endswith(files.CONFIGS)]
    return Project(modules, configs, lambda name: texts.get(name, ""))


def _dotted_name(path: PurePath) -> str:
    """With all folders above: an import may begin at any of them, and `from ..data import` goes back up."""
    parts = list(path.with_suffix("").parts)
    parts = [part for part in parts if part.isidentifier() or part == parts[-1]]
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)


# Checking syntax in another process. Most files of a large tree have nothing to do with training; parsing them for
# syntax errors is most of the work of loading it.

# Checking fewer takes less time than starting a process.
_WORTH_IT = 100


def start_syntax_check(modules: Sequence[Module]) -> Callable[[], None]:
    """Starts parsing these modules for syntax errors. Call the result to wait until all are known."""
    if len(modules) < _WORTH_IT or not _may_fork():
        return lambda: _check(modules)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _report_errors(modules, reading, writing)
    os.close(writing)
    return lambda: _collect_errors(modules, child, reading)


def _may_fork() -> bool:
    return hasattr(os, "fork") and sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


def _check(modules: Sequence[Module]) -> None:
    for module in modules:
        assert module.tree is not None  # parsed now, so that its error is known
        module.forget()


def _report_errors(modules: Sequence[Module], reading: int, writing: int) -> None:
    """Runs in the child process, and ends it: it must not return into the parent's code."""
    status = 1
    try:
        os.close(reading)
        _check(modules)
        said = json.dumps([(at, module.error) for at, module in enumerate(modules) if module.error is not None])
        with os.fdopen(writing, "w") as out:
            out.write(said)
        status = 0
    finally:
        os._exit(status)


def _collect_errors(modules: Sequence[Module], child: int, reading: int) -> None:
    with os.fdopen(reading) as said:
        text = said.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        _check(modules)  # it died: nothing is known
        return
    for at, (line, column, words) in json.loads(text):
        modules[at].error = (line, column, words)
