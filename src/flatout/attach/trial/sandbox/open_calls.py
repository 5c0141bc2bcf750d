"""`open` in all its forms: reading goes through the overlay, writing goes to a copy in the scratch folder."""

from __future__ import annotations

import _io
import errno
import io
import os
import posix
import stat
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from typing import Any

from .overlay import Overlay, check_can_add, errors_named_after, path_of, redirect_read, rename_in_error
from .references import References, as_builtin

_READS = frozenset(("r", "rb", "rt", "br", "tr"))
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Place of `opener` among the arguments of `open` that follow file and mode.
_OPENER = 5
_UNNAMED = getattr(os, "O_TMPFILE", 0)


class OpenCalls:
    def __init__(self, overlay: Overlay, note_write: Callable[[str], None]) -> None:
        self._overlay = overlay
        self._note_write = note_write

    # By flags: os.open, to which all others come down

    def os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & _CHANGES:
            return self._to_write(path, flags, mode, dir_fd)
        if not self._overlay.words[0]:
            return posix.open(path, flags, mode, dir_fd=dir_fd)
        where = redirect_read(path, self._overlay, dir_fd, follow=not flags & os.O_NOFOLLOW)
        if where is None:
            return posix.open(path, flags, mode, dir_fd=dir_fd)
        try:
            return posix.open(where, flags, mode)
        except OSError as error:
            rename_in_error(error, path)
            raise

    def _to_write(self, path: Any, flags: int, mode: int, dir_fd: int | None) -> int:
        asked = path_of(path, self._overlay, dir_fd)
        if asked is None:
            return posix.open(path, flags, mode, dir_fd=dir_fd)
        exclusive = flags & os.O_CREAT and flags & os.O_EXCL
        with errors_named_after(path):
            where = self.path_for_writing(asked, flags, follow=not (exclusive or flags & os.O_NOFOLLOW))
            return posix.open(where, flags, mode)

    def path_for_writing(self, asked: str, flags: int, follow: bool = True) -> str:
        """Where to open it, after what has to be made there first."""
        overlay = self._overlay
        canonical = overlay.resolve(asked, follow)
        if not overlay.places.is_contained(canonical):
            overlay.make_real_parent(canonical)
            return canonical
        if _UNNAMED and flags & _UNNAMED == _UNNAMED:
            return overlay.copy_up(canonical)
        mode = overlay.mode(canonical)
        if mode is None:
            if flags & os.O_CREAT:
                prepare_parent(overlay, canonical)
                self._note_write(canonical)
            return overlay.mirror(canonical)
        if flags & os.O_CREAT and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), asked)
        where = overlay.real_path(canonical)
        if not stat.S_ISREG(mode):
            return where  # a folder, which cannot be opened to write; a pipe or a device, which stores nothing
        if where == canonical:
            if not posix.access(canonical, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), asked)
            where = overlay.copy_up(canonical, empty=bool(flags & os.O_TRUNC))
        self._note_write(canonical)
        return where

    # By mode: the built-in open and io.FileIO

    def builtin_open(self) -> Callable[..., Any]:
        """What takes the place of `open`. Most of what is opened is read, and most of that is the user's own data."""
        overlay, words, real = self._overlay, self._overlay.words, _io.open
        path_for_reading, open_by_flags = overlay.path_for_reading, self._open_by_flags

        def open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if mode in _READS:
                if not words[0]:
                    return real(file, mode, *args, **kwargs)
                try:
                    path = file if type(file) is str else path_of(file, overlay)
                    moved = path and path_for_reading(path) is not None
                except OSError as error:
                    rename_in_error(error, file)
                    raise
                except Exception:
                    moved = False
            else:
                moved = type(file) is not int
            if moved and len(args) > _OPENER:
                opener = open_by_flags if args[_OPENER] is None else args[_OPENER]
                args = (*args[:_OPENER], opener, *args[_OPENER + 1 :])
            elif moved and kwargs.get("opener") is None:
                kwargs["opener"] = open_by_flags
            return real(file, mode, *args, **kwargs)

        return open_file

    def _open_by_flags(self, path: Any, flags: int) -> int:
        return self.os_open(path, flags, 0o666)

    def file_io(self) -> type:
        """What takes the place of io.FileIO: equal in all but where it opens."""
        open_by_flags = self._open_by_flags

        class Kind(type(_io.FileIO)):  # type: ignore[misc]
            def __instancecheck__(cls, instance: object) -> bool:
                return isinstance(instance, _io.FileIO) if cls is FileIO else type.__instancecheck__(cls, instance)

            def __subclasscheck__(cls, kind: type) -> bool:
                return issubclass(kind, _io.FileIO) if cls is FileIO else type.__subclasscheck__(cls, kind)

        class FileIO(_io.FileIO, metaclass=Kind):
            def __init__(self, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None) -> None:
                if opener is None and type(file) is not int:
                    opener = open_by_flags
                super().__init__(file, mode, closefd, opener)

        FileIO.__module__, FileIO.__qualname__ = "_io", "FileIO"
        return FileIO


def prepare_parent(overlay: Overlay, canonical: str) -> None:
    """So that an entry of this name can be made in the mirror. Raises where the script could not have made it."""
    folder = canonical.rpartition("/")[0]
    mode = posix.lstat(overlay.real_path(folder or "/")).st_mode
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), canonical)
    check_can_add(overlay, folder, canonical)
    overlay.mirror_folder(folder)


# Imports: Python reads and writes module files by functions of its own.


def contain_imports(overlay: Overlay, references: References) -> None:
    """Bytecode is written for installed packages only, and a module that the script has written is found."""
    installed = tuple(f"{folder}/" for folder in {sys.prefix, sys.base_prefix})
    keep, get, open_code = SourceFileLoader.set_data, SourceFileLoader.get_data, io.open_code

    def set_data(self: Any, path: Any, data: Any, **kwargs: Any) -> None:
        if str(path).startswith(installed) and not overlay.places.is_contained(str(path)):
            keep(self, path, data, **kwargs)

    def get_data(self: Any, path: Any) -> bytes:
        return get(self, _find_path(overlay, path))

    references.replace(SourceFileLoader, "set_data", set_data)
    references.replace(SourceFileLoader, "get_data", get_data)
    find_code = as_builtin(open_code, lambda path: open_code(_find_path(overlay, path)), "io")
    references.replace(io, "open_code", find_code)


def _find_path(overlay: Overlay, path: Any) -> Any:
    if not overlay.words[0]:
        return path
    try:
        asked = path_of(path, overlay)
        return (overlay.path_for_reading(asked) if asked else None) or path
    except Exception:
        return path  # an import must not fail for it
