"""The functions of `os` that change names, folders and attributes: they change the mirror, and bury originals."""

from __future__ import annotations

import errno
import os
import posix
import stat
from collections.abc import Callable
from typing import Any

from .asking import can_add, named, path_behind, path_of
from .copying import copy_file, move_tree
from .opening import make_room
from .overlay import Overlay, mode_of

_ATTRIBUTES = ("chmod", "chown", "utime", "truncate", "setxattr", "removexattr")


class Changing:
    def __init__(self, overlay: Overlay, wrote: Callable[[str], None]) -> None:
        self._overlay = overlay
        self._wrote = wrote

    def functions(self) -> dict[str, Callable[..., Any]]:
        """What takes the place of each, by name."""
        made: dict[str, Callable[..., Any]] = {
            name: getattr(self, name) for name in ("mkdir", "rmdir", "unlink", "link", "symlink", "mkfifo", "mknod")
        }
        made |= {"remove": self.unlink, "rename": self.rename, "replace": self.rename}
        made |= {name: self._of_attributes(getattr(posix, name)) for name in _ATTRIBUTES}
        made["lchown"] = self._of_attributes(posix.lchown, follow=False)
        chmod, chown = made["chmod"], made["chown"]
        # A file that was opened to be read is the original: its mirror is meant.
        made["fchmod"] = lambda fd, mode: chmod(fd, mode)
        made["fchown"] = lambda fd, uid, gid: chown(fd, uid, gid)
        return made

    # Names and folders

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._make(path, dir_fd, lambda where: posix.mkdir(where, mode))

    def mkfifo(self, path: Any, mode: int = 0o666, *, dir_fd: int | None = None) -> None:
        self._make(path, dir_fd, lambda where: posix.mkfifo(where, mode))

    def mknod(self, path: Any, mode: int = 0o600, device: int = 0, *, dir_fd: int | None = None) -> None:
        self._make(path, dir_fd, lambda where: posix.mknod(where, mode, device))

    def symlink(self, src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None) -> None:
        with named(src, dst):
            self._make(dst, dir_fd, lambda where: posix.symlink(src, os.fsencode(where) if _is_bytes(src) else where))

    def _make(self, path: Any, dir_fd: int | None, make: Callable[[str], None]) -> None:
        overlay = self._overlay
        with named(path):
            canonical = self._canonical(path, dir_fd)
            if not overlay.places.contain(canonical):
                overlay.reach(canonical)
                make(canonical)
                return
            if overlay.mode(canonical) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            make_room(overlay, canonical)
            make(overlay.mirror(canonical))
            overlay.journal.changed()

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        overlay = self._overlay
        with named(path):
            canonical = self._canonical(path, dir_fd)
            if not overlay.places.contain(canonical):
                posix.unlink(canonical)
                return
            mode = self._seen(canonical)
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            self._may_remove(canonical)
            # The original first: it must not be seen for a moment when its mirror is no more.
            self._bury(canonical)
            if mode_of(overlay.mirror(canonical)) is not None:
                posix.unlink(overlay.mirror(canonical))
                overlay.journal.changed()
            self._wrote(canonical)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        overlay = self._overlay
        with named(path):
            canonical = self._canonical(path, dir_fd)
            if not overlay.places.contain(canonical):
                posix.rmdir(canonical)
                return
            if not stat.S_ISDIR(self._seen(canonical)):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if overlay.names(canonical):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            self._may_remove(canonical)
            if mode_of(overlay.mirror(canonical)) is not None:
                posix.rmdir(overlay.mirror(canonical))
            self._bury(canonical)

    def rename(self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        overlay = self._overlay
        with named(src, dst):
            source, target = self._canonical(src, src_dir_fd), self._canonical(dst, dst_dir_fd)
            from_user, to_user = overlay.places.contain(source), overlay.places.contain(target)
            if not from_user and not to_user:
                overlay.reach(target)
                posix.rename(source, target)
                return
            if source == target:
                self._seen(source)
                return
            self._check(source, target, src, dst)
            where = overlay.own_all(source) if from_user else source
            if to_user:
                make_room(overlay, target)
                self._put(where, target)
                self._wrote(target)
            else:
                overlay.reach(target)
                _move(where, target)
            if from_user:
                self._bury(source)
            overlay.journal.changed()

    def _check(self, source: str, target: str, src: Any, dst: Any) -> None:
        """The system cannot say what is wrong: it sees only the mirror."""
        overlay = self._overlay
        mode, before = self._seen(source), overlay.mode(target)
        if stat.S_ISDIR(mode) and target.startswith(source + "/"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), src, None, dst)
        if source.startswith(target + "/"):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), src, None, dst)
        if overlay.places.contain(source):
            self._may_remove(source)
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
            overlay.bury(target)
        _move(where, overlay.mirror(target))
        # Not sooner: a file that is replaced is there all the time.
        if before is not None and stat.S_ISLNK(before):
            overlay.bury(target)

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
        with named(src, dst):
            source = self._canonical(src, src_dir_fd)
            mode = self._seen(source)
            target = self._canonical(dst, dst_dir_fd)
            contained = overlay.places.contain(target)
            if contained and overlay.mode(target) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), src, None, dst)
            if contained:
                make_room(overlay, target)
            if stat.S_ISDIR(mode):
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), src, None, dst)
            # A second name for the user's own file would let it be changed through it: for one of its mirror.
            where = overlay.own(source) if overlay.places.contain(source) else source
            _link(where, overlay.mirror(target) if contained else target)
            if contained:
                self._wrote(target)

    # Attributes

    def _of_attributes(self, original: Callable[..., Any], follow: bool = True) -> Callable[..., Any]:
        overlay = self._overlay

        def change(path: Any, *args: Any, **kwargs: Any) -> Any:
            dir_fd = kwargs.pop("dir_fd", None)
            asked = path_behind(path, overlay) if type(path) is int else path_of(path, overlay, dir_fd)
            if asked is None:
                # Something without a name, such as a pipe: nobody's file.
                return original(path, *args, **kwargs)
            with named(path):
                canonical = overlay.resolve(asked, follow and kwargs.get("follow_symlinks", True))
                if not overlay.places.contain(canonical):
                    return original(canonical if type(path) is not int else path, *args, **kwargs)
                self._seen(canonical)
                self._wrote(canonical)
                return original(overlay.own(canonical), *args, **kwargs)

        return change

    # What they share

    def _canonical(self, path: Any, dir_fd: int | None) -> str:
        asked = path_of(path, self._overlay, dir_fd)
        if asked is None:
            os.fspath(path)  # says what is wrong with it
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._overlay.resolve(asked, follow=False)

    def _seen(self, canonical: str) -> int:
        return posix.lstat(self._overlay.physical(canonical)).st_mode

    def _may_remove(self, canonical: str) -> None:
        folder = canonical.rpartition("/")[0]
        if self._overlay.shows_original(folder or "/") and not can_add(folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), canonical)

    def _bury(self, canonical: str) -> None:
        if self._overlay.shows_original(canonical):
            self._overlay.bury(canonical)
        else:
            self._overlay.journal.changed()


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


def _is_bytes(asked: Any) -> bool:
    return isinstance(os.fspath(asked), bytes)
