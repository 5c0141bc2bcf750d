"""From what the script asks for (text, bytes, path objects, descriptors, folders by descriptor) to a path, and back."""

from __future__ import annotations

import os
import posix
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .overlay import Overlay
from .places import folder_behind


def path_of(asked: Any, overlay: Overlay, dir_fd: int | None = None) -> str | None:
    """As text, below its folder where that is given by descriptor; None: it is no path, or not to be told."""
    try:
        path = asked if type(asked) is str else os.fsdecode(asked)
    except TypeError:
        return None
    if not path or "\0" in path:
        return None
    if dir_fd is None or path.startswith("/"):
        return path
    behind = folder_behind(dir_fd)
    return None if behind is None else f"{overlay.virtual(behind)}/{path}"


def path_behind(descriptor: int, overlay: Overlay) -> str | None:
    """Of what is open under a descriptor, as the script knows it."""
    behind = folder_behind(descriptor)
    return None if behind is None else overlay.virtual(behind)


def elsewhere(path: Any, overlay: Overlay, dir_fd: int | None, follow: bool) -> str | None:
    """Where to look for what is only looked at; None: where the script says, by its own name."""
    asked = None
    try:
        asked = path_of(path, overlay, dir_fd)
        where = overlay.for_reading(asked, follow) if asked else None
    except OSError as error:
        blame(error, path)
        raise
    except Exception:
        where = None
    if where is None and dir_fd is not None:
        return asked  # the folder that is open may be the mirror of the one that has it
    return where


@contextmanager
def named(asked: Any, second: Any = None) -> Iterator[None]:
    """What goes wrong is told by the script's own names."""
    try:
        yield
    except OSError as error:
        blame(error, asked, second)
        raise


def blame(error: OSError, asked: Any, second: Any = None) -> None:
    if error.filename is not None:
        error.filename = asked
    if second is not None:
        error.filename2 = second


def can_add(folder: str) -> bool:
    """Whether the user's own folder would have let it be: a trial must fail where the script would."""
    return posix.access(folder or "/", os.W_OK | os.X_OK)
