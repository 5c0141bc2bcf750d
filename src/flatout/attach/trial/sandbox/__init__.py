"""The sandbox of a trial: what the script writes goes to a scratch folder, and is seen in its place.

Within the trial the scratch folder overlays the file system: what was written is read back under its own name, what was
removed is gone, and after the trial the user's files are as they were. This covers what Python does and the libraries
listed in `libraries`; programs in other languages that the script starts are named, not contained.

Nothing of ours is raised into the script, with one exception: a write that we cannot redirect fails rather than reach
the user's file.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from functools import partial

from ...imports import after_import
from .libraries import Libraries
from .open_calls import OpenCalls, contain_imports
from .os_calls import WriteCalls, make_read_calls
from .overlay import Overlay
from .references import References
from .scratch import Places
from .subprocesses import Subprocesses

_MOST_NOTED = 10_000


_references: References | None = None


def begin(scratch: str, roots: Sequence[str], note: Callable[[dict[str, str]], None]) -> None:
    """Contain this process from here on. `roots`: folders of the user's even where they lie in a temporary folder.

    `note` gets each `{"file": path}` that is first written or removed, and each `{"program": name}` not contained.
    """
    global _references
    if _references is not None:
        return
    references = _references = References()
    scratch = os.path.realpath(scratch)
    overlay = Overlay(scratch, Places(scratch, roots, os.environ))
    noted: set[str] = set()

    def send(fact: dict[str, str]) -> None:
        try:
            note(fact)
        except Exception:
            pass  # not worth a training step

    def note_write(canonical: str) -> None:
        if canonical not in noted and len(noted) < _MOST_NOTED:
            noted.add(canonical)
            send({"file": canonical})

    open_calls, subprocesses = OpenCalls(overlay, note_write), Subprocesses(overlay, send)
    replacements = make_read_calls(overlay) | WriteCalls(overlay, note_write).functions()
    replacements |= subprocesses.functions() | {"open": open_calls.os_open}
    references.put(replacements, open_calls.builtin_open())
    references.replace(io, "FileIO", open_calls.file_io())
    contain_imports(overlay, references)
    after_import("subprocess", partial(subprocesses.install, references=references))
    Libraries(overlay, open_calls, references).wait()


def end() -> None:
    global _references
    if _references is not None:
        _references.restore()
        _references = None
