"""Replacements for the functions of `os` that read or change the file system: they see and change the mirror."""

from __future__ import annotations

import errno
import os
import posix
import stat
from collections.abc import Callable, Iterator
from typing import Any

from .open_calls import prepare_parent
from .overlay import (
    Overlay,
    check_can_add,
    errors_named_after,
    mode_of,
    path_behind,
    path_of,
    redirect_read,
    rename_in_error,
)
from .scratch import copy_file, move_tree


def make_read_calls(overlay: Overlay) -> dict[str, Callable[..., Any]]:
    """What takes the place of each, by name."""
    following = ("stat", "access", "statvfs", "pathconf", "getxattr", "listxattr")
    folder_calls = FolderCalls(overlay)
    return {
        **{name: _make_read_call(overlay, getattr(posix, name), follow=True) for name in following},
        **{name: _make_read_call(overlay, getattr(posix, name), follow=False) for name in ("lstat", "readlink")},
        **{
            name: getattr(folder_calls, name) for name in ("listdir", "scandir", "chdir", "fchdir", "getcwd", "getcwdb")
        },
    }


def _make_read_call(overlay: Overlay, original: Callable[..., Any], follow: bool) -> Callable[..., Any]:
    """`follow`: the call is about what a link leads to, unless it says otherwise; else about the link itself."""
    words = overlay.words

    def look(path: Any, *args: Any, dir_fd: int | None = None, **kwargs: Any) -> Any:
        where = None
        if words[0] and type(path) is not int:
            where = redirect_read(path, overlay, dir_fd, follow and kwargs.get("follow_symlinks", True))
        if where is None:
            return original(path, *args, **(kwargs if dir_fd is None else {**kwargs, "dir_fd": dir_fd}))
        try:
            return original(where, *args, **kwargs)
        except OSError as error:
            rename_in_error(error, path)
            raise

    return look


class FolderCalls:
    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay

    def listdir(self, path: Any = None) -> Any:
        canonical = self._find_merged_folder(path)
        if canonical is None:
            return posix.listdir(path)
        with errors_named_after(path):
            names = self._overlay.names(canonical)
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def scandir(self, path: Any = None) -> Any:
        overlay = self._overlay
        canonical = self._find_merged_folder(path)
        if canonical is None:
            system = posix.scandir(path)
            return Entries(self._with_links(system, path), system) if overlay.words[0] else system
        with errors_named_after(path):
            names = overlay.names(canonical)
        return Entries(Entry(overlay, canonical, path, name) for name in names)

    def _with_links(self, entries: Any, path: Any) -> Iterator[Any]:
        """The system's own entries, but for links: what those lead to may be in the mirror."""
        overlay = self._overlay
        for entry in entries:
            if entry.is_symlink():
                asked = path_behind("." if path is None else path, overlay)
                yield Entry(overlay, overlay.resolve(asked or "."), path, os.fsdecode(entry.name))
            else:
                yield entry

    def _find_merged_folder(self, path: Any) -> str | None:
        """The folder, if the system alone would list it wrongly."""
        overlay = self._overlay
        if not overlay.words[0]:
            return None
        try:
            asked = path_behind("." if path is None else path, overlay)
            if asked is None:
                return None
            canonical = overlay.resolve(asked)
            folder = overlay.folder(asked)
        except OSError as error:
            rename_in_error(error, path)
            raise
        except Exception:
            return None
        return None if folder.plain else canonical

    def chdir(self, path: Any) -> None:
        overlay = self._overlay
        asked = path_of(path, overlay) if overlay.words[0] and type(path) is not int else None
        try:
            with errors_named_after(path):
                canonical = overlay.resolve(asked) if asked else None
                # The original where there is one: libraries of other languages read by relative names too.
                if canonical is None:
                    posix.chdir(path)
                elif overlay.places.is_contained(canonical) and not overlay.shows_original(canonical):
                    posix.chdir(overlay.mirror(canonical))
                else:
                    posix.chdir(canonical)
        finally:
            overlay.forget_cwd()

    def fchdir(self, fd: int) -> None:
        try:
            posix.fchdir(fd)
        finally:
            self._overlay.forget_cwd()

    def getcwd(self) -> str:
        return self._overlay.script_path(posix.getcwd())

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
        with errors_named_after(self.path):
            where = overlay.resolve(self._canonical) if follow_symlinks else self._canonical
            return posix.lstat(overlay.real_path(where))

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


# Functions of `os` that change names, folders and attributes: they change the mirror and white out originals.

_ATTRIBUTES = ("chmod", "chown", "utime", "truncate", "setxattr", "removexattr")


class WriteCalls:
    def __init__(self, overlay: Overlay, note_write: Callable[[str], None]) -> None:
        self._overlay = overlay
        self._note_write = note_write

    def functions(self) -> dict[str, Callable[..., Any]]:
        """What takes the place of each, by name."""
        made: dict[str, Callable[..., Any]] = {
            name: getattr(self, name) for name in ("rmdir", "unlink", "link", "symlink")
        }
        made |= {name: self._of_making(getattr(posix, name)) for name in ("mkdir", "mkfifo", "mknod")}
        made |= {"remove": self.unlink, "rename": self.rename, "replace": self.rename}
        made |= {name: self._of_attributes(getattr(posix, name)) for name in _ATTRIBUTES}
        made["lchown"] = self._of_attributes(posix.lchown, follow=False)
        chmod, chown = made["chmod"], made["chown"]
        # A file that was opened to be read is the original: its mirror is meant.
        made["fchmod"] = lambda fd, mode: chmod(fd, mode)
        made["fchown"] = lambda fd, uid, gid: chown(fd, uid, gid)
        return made

    # Names and folders

    def _of_making(self, original: Callable[..., None]) -> Callable[..., None]:
        def make(path: Any, *args: Any, dir_fd: int | None = None, **kwargs: Any) -> None:
            self._make(path, dir_fd, lambda where: original(where, *args, **kwargs))

        return make

    def symlink(self, src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None) -> None:
        with errors_named_after(src, dst):
            encode = os.fsencode if isinstance(os.fspath(src), bytes) else str
            self._make(dst, dir_fd, lambda where: posix.symlink(src, encode(where)))

    def _make(self, path: Any, dir_fd: int | None, make: Callable[[str], None]) -> None:
        overlay = self._overlay
        with errors_named_after(path):
            canonical = self._canonical(path, dir_fd)
            if not overlay.places.is_contained(canonical):
                overlay.make_real_parent(canonical)
                make(canonical)
                return
            if overlay.mode(canonical) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            prepare_parent(overlay, canonical)
            make(overlay.mirror(canonical))
            overlay.journal.announce_change()

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        overlay = self._overlay
        with errors_named_after(path):
            canonical = self._canonical(path, dir_fd)
            if not overlay.places.is_contained(canonical):
                posix.unlink(canonical)
                return
            mode = self._get_mode(canonical)
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            self._check_removable(canonical)
            # The original first: it must not be seen for a moment when its mirror is no more.
            self._white_out(canonical)
            if mode_of(overlay.mirror(canonical)) is not None:
                posix.unlink(overlay.mirror(canonical))
                overlay.journal.announce_change()
            self._note_write(canonical)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        overlay = self._overlay
        with errors_named_after(path):
            canonical = self._canonical(path, dir_fd)
            if not overlay.places.is_contained(canonical):
                posix.rmdir(canonical)
                return
            if not stat.S_ISDIR(self._get_mode(canonical)):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if overlay.names(canonical):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            self._check_removable(canonical)
            if mode_of(overlay.mirror(canonical)) is not None:
                posix.rmdir(overlay.mirror(canonical))
            self._white_out(canonical)

    def rename(self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        overlay = self._overlay
        with errors_named_after(src, dst):
            source, target = self._canonical(src, src_dir_fd), self._canonical(dst, dst_dir_fd)
            from_user, to_user = overlay.places.is_contained(source), overlay.places.is_contained(target)
            if not from_user and not to_user:
                overlay.make_real_parent(target)
                posix.rename(source, target)
                return
            if source == target:
                self._get_mode(source)
                return
            self._check(source, target, src, dst)
            where = overlay.copy_up_tree(source) if from_user else source
            if to_user:
                prepare_parent(overlay, target)
                self._put(where, target)
                self._note_write(target)
            else:
                overlay.make_real_parent(target)
                _move(where, target)
            if from_user:
                self._white_out(source)
            overlay.journal.announce_change()

    def _check(self, source: str, target: str, src: Any, dst: Any) -> None:
        """The system cannot say what is wrong: it sees only the mirror."""
        overlay = self._overlay
        mode, before = self._get_mode(source), overlay.mode(target)
        if stat.S_ISDIR(mode) and target.startswith(source + "/"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), src, None, dst)
        if source.startswith(target + "/"):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), src, None, dst)
        if overlay.places.is_contained(source):
            self._check_removable(source)
        if before is None:
            return
        if stat.S_ISDIR(before) and not stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), src, None, dst)
        if stat.S_ISDIR(mode) and not stat.S_ISDIR(before):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), src, None, dst)
        if stat.S_ISDIR(before) and overlay.names(target):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), src, None, dst)

    def _put(self, where: str, target: str) -> None:
        """An original folder or link of this name must not shine through what takes its place."""
        overlay = self._overlay
        before = mode_of(target) if overlay.shows_original(target) else None
        if before is not None and stat.S_ISDIR(before):
            overlay.white_out(target)
        _move(where, overlay.mirror(target))
        # Not sooner: a file that is replaced is there all the time.
        if before is not None and stat.S_ISLNK(before):
            overlay.white_out(target)

    def link(
        self,
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        overlay = self._overlay
        with errors_named_after(src, dst):
            source = self._canonical(src, src_dir_fd)
            mode = self._get_mode(source)
            target = self._canonical(dst, dst_dir_fd)
            contained = overlay.places.is_contained(target)
            if contained and overlay.mode(target) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), src, None, dst)
            if contained:
                prepare_parent(overlay, target)
            if stat.S_ISDIR(mode):
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), src, None, dst)
            # A second name for the user's own file would let it be changed: its mirror gets that name.
            where = overlay.copy_up(source) if overlay.places.is_contained(source) else source
            _link(where, overlay.mirror(target) if contained else target)
            if contained:
                self._note_write(target)

    # Attributes

    def _of_attributes(self, original: Callable[..., Any], follow: bool = True) -> Callable[..., Any]:
        overlay = self._overlay

        def change(path: Any, *args: Any, **kwargs: Any) -> Any:
            dir_fd = kwargs.pop("dir_fd", None)
            asked = path_behind(path, overlay, dir_fd)
            if asked is None:
                # Something without a name, such as a pipe: nobody's file.
                return original(path, *args, **kwargs)
            with errors_named_after(path):
                canonical = overlay.resolve(asked, follow and kwargs.get("follow_symlinks", True))
                if not overlay.places.is_contained(canonical):
                    return original(canonical if type(path) is not int else path, *args, **kwargs)
                self._get_mode(canonical)
                self._note_write(canonical)
                return original(overlay.copy_up(canonical), *args, **kwargs)

        return change

    # What they share

    def _canonical(self, path: Any, dir_fd: int | None) -> str:
        asked = path_of(path, self._overlay, dir_fd)
        if asked is None:
            os.fspath(path)  # says what is wrong with it
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._overlay.resolve(asked, follow=False)

    def _get_mode(self, canonical: str) -> int:
        return posix.lstat(self._overlay.real_path(canonical)).st_mode

    def _check_removable(self, canonical: str) -> None:
        check_can_add(self._overlay, canonical.rpartition("/")[0], canonical)

    def _white_out(self, canonical: str) -> None:
        if self._overlay.shows_original(canonical):
            self._overlay.white_out(canonical)
        else:
            self._overlay.journal.announce_change()


def _move(source: str, target: str) -> None:
    try:
        posix.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # The scratch folder may lie on another file system than the two names do.
        move_tree(source, target)


def _link(source: str, target: str) -> None:
    try:
        posix.link(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy_file(source, target, posix.stat(source), target.rpartition("/")[0])
