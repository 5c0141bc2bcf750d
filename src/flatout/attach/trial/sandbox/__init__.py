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


class Sandbox:
    def __init__(self, scratch: str, roots: Sequence[str], note: Callable[[dict[str, str]], None]) -> None:
        scratch = os.path.realpath(scratch)
        self._note = note
        self._noted: set[str] = set()
        self.overlay = Overlay(scratch, Places(scratch, roots, os.environ))
        self._references = References()

    def begin(self) -> None:
        open_calls = OpenCalls(self.overlay, self._note_write)
        subprocesses = Subprocesses(self.overlay, self._send_note)
        replacements = make_read_calls(self.overlay) | WriteCalls(self.overlay, self._note_write).functions()
        replacements |= subprocesses.functions() | {"open": open_calls.os_open}
        self._references.put(replacements, open_calls.builtin_open())
        self._references.replace(io, "FileIO", open_calls.file_io())
        contain_imports(self.overlay, self._references)
        after_import("subprocess", partial(subprocesses.install, references=self._references))
        Libraries(self.overlay, open_calls, self._references).wait()

    def end(self) -> None:
        self._references.restore()

    def _note_write(self, canonical: str) -> None:
        if canonical not in self._noted and len(self._noted) < _MOST_NOTED:
            self._noted.add(canonical)
            self._send_note({"file": canonical})

    def _send_note(self, fact: dict[str, str]) -> None:
        try:
            self._note(fact)
        except Exception:
            pass  # not worth a training step


_now: Sandbox | None = None


def begin(scratch: str, roots: Sequence[str], note: Callable[[dict[str, str]], None]) -> None:
    """Contain this process from here on. `roots`: folders of the user's even where they lie in a temporary folder.

    `note` gets each `{"file": path}` that is first written or removed, and each `{"program": name}` not contained.
    """
    global _now
    if _now is None:
        _now = Sandbox(scratch, roots, note)
        _now.begin()


def end() -> None:
    """Put every original back."""
    global _now
    if _now is not None:
        _now.end()
        _now = None
