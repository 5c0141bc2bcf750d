"""Keeps what a trial writes away from the user's files: it goes to a scratch folder, and is seen in its place.

Within the trial the scratch folder lies over the file system: what was written is read back under its own name, what
was removed is gone, and after the trial the user's files are as they were. It covers what Python does and the libraries
listed in `libraries`; programs in other languages that the script starts are named, not contained.

Nothing of ours is raised into the script, with one exception: where it is not known how to keep a write away, the write
fails rather than reach the user's file.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from functools import partial

from ..imports import after_import
from .changing import Changing
from .children import Children
from .libraries import Libraries
from .looking import functions as looking
from .modules import contain_modules
from .opening import Opening
from .overlay import Overlay
from .places import Places
from .references import References

_MOST_NOTED = 10_000


class Containment:
    def __init__(self, scratch: str, roots: Sequence[str], note: Callable[[str], None]) -> None:
        scratch = os.path.realpath(scratch)
        self._note = note
        self._noted: set[str] = set()
        self.overlay = Overlay(scratch, Places(scratch, roots, os.environ))
        self._references = References()

    def begin(self) -> None:
        opening = Opening(self.overlay, self._wrote)
        children = Children(self.overlay, self._tell)
        replacements = looking(self.overlay) | Changing(self.overlay, self._wrote).functions()
        replacements |= children.functions() | {"open": opening.os_open}
        self._references.put(replacements, opening.builtin_open())
        self._references.replace(io, "FileIO", opening.file_io())
        contain_modules(self.overlay, self._references)
        after_import("subprocess", partial(children.watch, references=self._references))
        Libraries(self.overlay, opening, self._references).wait()

    def end(self) -> None:
        self._references.restore()

    def _wrote(self, canonical: str) -> None:
        if canonical not in self._noted and len(self._noted) < _MOST_NOTED:
            self._noted.add(canonical)
            self._tell(canonical)

    def _tell(self, text: str) -> None:
        try:
            self._note(text)
        except Exception:
            pass  # not worth a training step


_now: Containment | None = None


def begin(scratch: str, roots: Sequence[str], note: Callable[[str], None]) -> None:
    """Contain this process from here on. `roots`: folders of the user's even where they lie in a temporary folder.

    `note` gets each path that is first written or removed, and, as a sentence, each program that is not contained.
    """
    global _now
    if _now is None:
        _now = Containment(scratch, roots, note)
        _now.begin()


def end() -> None:
    """Put every original back."""
    global _now
    if _now is not None:
        _now.end()
        _now = None
