"""The functions of `os` that look without changing: they see the mirror over the original."""

from __future__ import annotations

import os
import posix
import stat
from collections.abc import Callable, Iterator
from typing import Any

from .asking import blame, elsewhere, path_behind, path_of
from .overlay import Overlay


def functions(overlay: Overlay) -> dict[str, Callable[..., Any]]:
    """What takes the place of each, by name."""
    made = {
        name: _following(overlay, getattr(posix, name)) for name in ("statvfs", "pathconf", "getxattr", "listxattr")
    }
    made |= {name: _following(overlay, getattr(posix, name)) for name in ("stat", "access")}
    made["lstat"] = _not_following(overlay, posix.lstat)
    made["readlink"] = _not_following(overlay, posix.readlink)
    looking = Looking(overlay)
    for name in ("listdir", "scandir", "chdir", "fchdir", "getcwd", "getcwdb"):
        made[name] = getattr(looking, name)
    return made


def _following(overlay: Overlay, original: Callable[..., Any]) -> Callable[..., Any]:
    words, for_reading, text = overlay.words, overlay.for_reading, str

    def look(path: Any, *args: Any, **kwargs: Any) -> Any:
        if not words[0] or type(path) is int:
            return original(path, *args, **kwargs)
        if kwargs and ("dir_fd" in kwargs or "follow_symlinks" in kwargs):
            return look_closer(path, *args, **kwargs)
        try:
            asked = path if type(path) is text else path_of(path, overlay)
            where = for_reading(asked) if asked else None
        except OSError as error:
            blame(error, path)
            raise
        except Exception:
            where = None
        if where is None:
            return original(path, *args, **kwargs)
        try:
            return original(where, *args, **kwargs)
        except OSError as error:
            blame(error, path)
            raise

    closer = _not_following(overlay, original)

    def look_closer(path: Any, *args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("follow_symlinks", True):
            return closer(path, *args, **kwargs)
        dir_fd = kwargs.pop("dir_fd", None)
        asked = path_of(path, overlay, dir_fd)
        if dir_fd is None or asked is None:
            return look(path, *args, **_without(kwargs, "follow_symlinks"))
        return look(asked, *args, **_without(kwargs, "follow_symlinks"))

    return look


def _without(kwargs: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in kwargs.items() if key != name}


def _not_following(overlay: Overlay, original: Callable[..., Any]) -> Callable[..., Any]:
    """Of a link, the link itself."""
    words = overlay.words

    def look(path: Any, *args: Any, dir_fd: int | None = None, **kwargs: Any) -> Any:
        given = kwargs if dir_fd is None else {**kwargs, "dir_fd": dir_fd}
        if not words[0]:
            return original(path, *args, **given)
        where = elsewhere(path, overlay, dir_fd, follow=False)
        if where is None:
            return original(path, *args, **given)
        try:
            return original(where, *args, **kwargs)
        except OSError as error:
            blame(error, path)
            raise

    return look


class Looking:
    """Those that are about folders."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay

    def listdir(self, path: Any = None) -> Any:
        canonical = self._merged(path)
        if canonical is None:
            return posix.listdir(path)
        try:
            names = self._overlay.names(canonical)
        except OSError as error:
            blame(error, path)
            raise
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def scandir(self, path: Any = None) -> Any:
        overlay = self._overlay
        canonical = self._merged(path)
        if canonical is None:
            system = posix.scandir(path)
            return Entries(self._with_links(system, path), system) if overlay.words[0] else system
        try:
            names = overlay.names(canonical)
        except OSError as error:
            blame(error, path)
            raise
        return Entries(Entry(overlay, canonical, path, name) for name in names)

    def _with_links(self, entries: Any, path: Any) -> Iterator[Any]:
        """The system's own entries, but for links: what those lead to may be in the mirror."""
        overlay = self._overlay
        for entry in entries:
            if entry.is_symlink():
                asked = path_behind(path, overlay) if type(path) is int else path_of(path or ".", overlay)
                yield Entry(overlay, overlay.resolve(asked or "."), path, os.fsdecode(entry.name))
            else:
                yield entry

    def _merged(self, path: Any) -> str | None:
        """The folder, if the system alone would list it wrongly."""
        overlay = self._overlay
        if not overlay.words[0]:
            return None
        try:
            asked = path_behind(path, overlay) if type(path) is int else path_of(path or ".", overlay)
            if asked is None:
                return None
            canonical = overlay.resolve(asked)
            folder = overlay.folder(asked)
        except OSError as error:
            blame(error, path)
            raise
        except Exception:
            return None
        return None if folder.plain else canonical

    def chdir(self, path: Any) -> None:
        overlay = self._overlay
        asked = path_of(path, overlay) if overlay.words[0] and type(path) is not int else None
        try:
            canonical = overlay.resolve(asked) if asked else None
            # The original where there is one: libraries of other languages read by relative names too.
            if canonical is None:
                posix.chdir(path)
            elif overlay.places.contain(canonical) and not overlay.shows_original(canonical):
                posix.chdir(overlay.mirror(canonical))
            else:
                posix.chdir(canonical)
        except OSError as error:
            blame(error, path)
            raise
        finally:
            overlay.moved()

    def fchdir(self, fd: int) -> None:
        try:
            posix.fchdir(fd)
        finally:
            self._overlay.moved()

    def getcwd(self) -> str:
        return self._overlay.virtual(posix.getcwd())

    def getcwdb(self) -> bytes:
        return os.fsencode(self.getcwd())


class Entries:
    """What `os.scandir` gives: an iterator that can be closed."""

    def __init__(self, entries: Iterator[Any], system: Any = None) -> None:
        self._entries = entries
        self._system = system

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def close(self) -> None:
        self._entries = iter(())
        if self._system is not None:
            self._system.close()

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *trouble: object) -> None:
        self.close()


class Entry:
    """One entry, as `os.DirEntry` would tell of it."""

    __slots__ = ("_canonical", "_overlay", "name", "path")

    def __init__(self, overlay: Overlay, folder: str, asked: Any, name: str) -> None:
        self._overlay = overlay
        self._canonical = f"{'' if folder == '/' else folder}/{name}"
        self.name: Any = os.fsencode(name) if isinstance(asked, bytes) else name
        at = "." if asked is None else asked
        self.path: Any = self.name if type(at) is int else os.path.join(at, self.name)  # type: ignore[arg-type]

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        overlay = self._overlay
        try:
            where = overlay.resolve(self._canonical) if follow_symlinks else self._canonical
            return posix.lstat(overlay.physical(where))
        except OSError as error:
            blame(error, self.path)
            raise

    def _mode(self, follow_symlinks: bool) -> int:
        try:
            return self.stat(follow_symlinks=follow_symlinks).st_mode
        except FileNotFoundError:
            return 0

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISDIR(self._mode(follow_symlinks))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISREG(self._mode(follow_symlinks))

    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self._mode(False))

    def is_junction(self) -> bool:
        return False
