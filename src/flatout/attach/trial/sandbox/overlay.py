"""A view of the file system in which what a trial writes lies over the user's files, which stay as they are.

`canonical` is a path as the script sees it, absolute and free of links. `<scratch>/files<canonical>` is its mirror.
The script sees the mirror where there is one, else the original, unless that or a folder above it was removed. The
mirror on disk and the journal are the truth; what is remembered here holds until the journal's word changes.
"""

from __future__ import annotations

import errno
import os
import posix
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from .scratch import Journal, Places, copy_file, copy_times, is_system_path, path_of_descriptor

# In the scratch folder.
MIRROR = "files"
_MOST_FOLDERS = 50_000
_MOST_LINKS = 40
_NOT_A_NAME = ("", ".", "..")


class Folder(NamedTuple):
    """A folder as asked for, and what is known of it."""

    path: str  # canonical; "" is the root
    mirror: str | None  # where the mirror has such a folder
    hidden: bool  # the originals in it are not to be seen
    natural: bool  # the system, asked for it by the script's name, would go to the original
    plain: bool  # nothing but originals in it, found by the script's names
    contained: bool = True
    links: int = 0  # how many were followed on the way there


class Overlay:
    def __init__(self, scratch: str, places: Places) -> None:
        self.scratch = scratch
        # Hidden from a script that looks through its whole folder: it would find its own files again.
        self._scratch_parent, _, self._scratch_name = scratch.rpartition("/")
        self.files = f"{scratch}/{MIRROR}"
        posix_makedirs(self.files)
        self.places = places
        self.journal = Journal(scratch)
        # 0: no process of the trial has written anything.
        self.words = self.journal.words
        self._seen = 0
        self._folders: dict[str, Folder] = {}
        self._cwd: str | None = None
        self._links = LinkFreeFolders()
        self._link_free = self._links.folders

    # Where things are

    def path_for_reading(self, path: str, follow: bool = True) -> str | None:
        """Where to find it, a link at its end followed or not; None: by the very name it was asked for."""
        if self.words[0] != self._seen:
            self._catch_up()
        head, slash, tail = path.rpartition("/")
        folder = self._folders.get(head or (slash or ".")) or self.folder(head or (slash or "."))
        if tail in _NOT_A_NAME:
            return self._find_folder(path)
        # Where originals are hidden, a link may lead to one of them.
        if folder.plain and (not self.words[1] or folder.path in self._link_free):
            return None
        return self._find_in(folder, tail, path, follow)

    def _find_in(self, folder: Folder, tail: str, asked: str, follow: bool) -> str | None:
        canonical = f"{folder.path}/{tail}"
        if folder.mirror is not None:
            mirrored = f"{folder.mirror}/{tail}"
            mode = mode_of(mirrored)
            if mode is not None:
                return self.real_path(self.resolve(canonical)) if follow and stat.S_ISLNK(mode) else mirrored
        if folder.hidden or canonical in self.journal.gone:
            return self.mirror(canonical)
        mode = None
        if follow and folder.path not in self._link_free:
            mode = mode_of(asked if folder.natural else canonical)
            self._links.ask(folder.path)
        if mode is not None and stat.S_ISLNK(mode) and not is_system_path(canonical):
            # The link is the original; what it leads to may not be.
            return self.real_path(self.resolve(canonical))
        return None if folder.natural else canonical

    def _find_folder(self, path: str) -> str | None:
        """A path that ends in a slash or in dots."""
        folder = self.folder(path)
        where = self.real_path(folder.path or "/")
        return None if folder.natural and where == (folder.path or "/") else where

    def resolve(self, path: str, follow: bool = True) -> str:
        """The canonical form of a path as the script gave it; `follow` its last part if that is a link."""
        if self.words[0] != self._seen:
            self._catch_up()
        head, slash, tail = path.rpartition("/")
        if tail in _NOT_A_NAME or follow:
            if not follow and tail == "" and head.strip("/"):
                return self.resolve(head, follow=False)
            return self.folder(path).path or "/"
        return f"{self.folder(head or (slash or '.')).path}/{tail}"

    def real_path(self, canonical: str) -> str:
        """Where what is seen under this name lies, or would lie."""
        if not self.places.is_contained(canonical):
            return canonical
        mirrored = self.mirror(canonical)
        if mode_of(mirrored) is not None or self.is_gone(canonical):
            return mirrored
        return canonical

    def mirror(self, canonical: str) -> str:
        return self.files + canonical

    def mode(self, canonical: str) -> int | None:
        """Of what is seen under this name, links not followed; None: nothing is."""
        return mode_of(self.real_path(canonical))

    def is_gone(self, canonical: str) -> bool:
        if self.words[0] != self._seen:
            self._catch_up()
        gone = self.journal.gone
        if not gone:
            return False
        at = canonical
        while at:
            if at in gone:
                return True
            at = at.rpartition("/")[0]
        return False

    def shows_original(self, canonical: str) -> bool:
        """Whether there is an original under this name that is not hidden, be there a mirror or not."""
        return not self.is_gone(canonical) and mode_of(canonical) is not None

    def cwd(self) -> str:
        if self._cwd is None:
            self._cwd = self.script_path(posix.getcwd())
        return self._cwd

    def script_path(self, path: str) -> str:
        """A path of the system's, as the script knows it."""
        if path == self.files:
            return "/"
        return path[len(self.files) :] if path.startswith(self.files + "/") else path

    def forget_cwd(self) -> None:
        self._cwd = None
        self._folders = {}

    # Folders

    def folder(self, asked: str, links: int = 0) -> Folder:
        # The same dict to the end: what another thread has thrown away meanwhile does not come back.
        folders = self._folders
        found = folders.get(asked)
        if found is None:
            found = self._look_up(asked, links)
            if len(folders) >= _MOST_FOLDERS:
                folders.clear()
            folders[asked] = found
        return found

    def _look_up(self, asked: str, links: int) -> Folder:
        if asked == "/" or asked.strip("/") == "":
            return Folder("", self.files, False, True, False)
        if asked == ".":
            # Asked by a relative name, the system goes to where it is: into the mirror where that has the only one.
            natural = not posix.getcwd().startswith(self.files)
            return self._follow_link(self.cwd(), links, natural)
        head, slash, tail = asked.rpartition("/")
        above = self.folder(head or (slash or "."), links)
        # A name with anything behind it, be it a slash or dots, is that of a folder.
        if tail in _NOT_A_NAME and not stat.S_ISDIR(posix.lstat(self.real_path(above.path or "/")).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), above.path or "/")
        if tail in ("", "."):
            return above
        if tail == "..":
            # The system cannot go up from a folder that only the mirror has.
            return self._follow_link(above.path.rpartition("/")[0] or "/", links, above.plain or above.path == "")
        canonical = f"{above.path}/{tail}"
        link, in_mirror = self._link(above, canonical, tail)
        if link is None:
            return self._describe_folder(canonical, above)
        target = link if link.startswith("/") else f"{above.path}/{link}"
        if links <= _MOST_LINKS:
            found = self._follow_link(target, links + 1, above.natural and not in_mirror)
            found = found._replace(links=above.links + 1 + found.links)
        if links > _MOST_LINKS or found.links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), asked)
        return found

    def _follow_link(self, path: str, links: int, natural: bool) -> Folder:
        folder = self.folder(path, links)
        return folder if natural else folder._replace(natural=False, plain=False)

    def _link(self, above: Folder, canonical: str, tail: str) -> tuple[str | None, bool]:
        """What a link leads to, or None, and whether the link is one of the mirror's."""
        if above.mirror is not None:
            mirrored = f"{above.mirror}/{tail}"
            mode = mode_of(mirrored)
            if mode is not None:
                return (posix.readlink(mirrored), True) if stat.S_ISLNK(mode) else (None, True)
        if above.hidden or canonical in self.journal.gone or is_system_path(canonical):
            return None, False
        try:
            return posix.readlink(canonical), False
        except OSError:
            return None, False

    def _describe_folder(self, canonical: str, above: Folder) -> Folder:
        contained = self.places.is_contained(canonical)
        hidden, mirror, mode = above.hidden or self.is_gone(canonical), None, None
        if (contained and (above.mirror is not None or not above.contained)) or canonical in self.places.around:
            mode = mode_of(self.mirror(canonical))
        if mode is not None and stat.S_ISDIR(mode):
            mirror = self.mirror(canonical)
        elif mode is not None:
            hidden = True  # by a file in the place of a folder, or of a link to one
        plain = above.natural and not hidden and mirror is None and canonical != self._scratch_parent
        return Folder(canonical, mirror, hidden and contained, above.natural, plain, contained, above.links)

    def _catch_up(self) -> None:
        # The word as it was before: what changes while we read is then read again.
        word = self.words[0]
        self.journal.catch_up()
        self._folders = {}
        self._seen = word

    # Making mirrors

    def copy_up(self, canonical: str, empty: bool = False) -> str:
        """A mirror of what is seen under this name, which may then be changed; `empty`: its content is not needed."""
        mirrored = self.mirror(canonical)
        if mode_of(mirrored) is not None:
            return mirrored
        if self.is_gone(canonical):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), canonical)
        known = posix.lstat(canonical)
        self.mirror_folder(canonical.rpartition("/")[0])
        if stat.S_ISDIR(known.st_mode):
            self._make_folder(canonical)
        elif stat.S_ISLNK(known.st_mode):
            posix.symlink(posix.readlink(canonical), mirrored)
        elif stat.S_ISREG(known.st_mode):
            copy_file(canonical, mirrored, known, self.scratch, empty)
        else:
            return canonical  # a pipe, a socket or a device: nothing is stored in it
        self.journal.note_hidden()
        self.journal.announce_change()
        return mirrored

    def copy_up_tree(self, canonical: str) -> str:
        """The same for a folder with all that is seen in it."""
        mirrored = self.copy_up(canonical)
        mode = mode_of(mirrored)
        if mode is not None and stat.S_ISDIR(mode):
            for name in self.names(canonical):
                self.copy_up_tree(f"{canonical}/{name}")
        return mirrored

    def mirror_folder(self, folder: str) -> None:
        """Mirrors of a folder that is seen, and of those above it, empty."""
        if folder in ("", "/") or mode_of(self.mirror(folder)) is not None:
            return
        self.mirror_folder(folder.rpartition("/")[0])
        self._make_folder(folder)
        self.journal.announce_change()

    def white_out(self, canonical: str) -> None:
        """The original is not to be seen any more. Its folder gets a mirror: what has none counts as all originals."""
        self.mirror_folder(canonical.rpartition("/")[0])
        self.journal.white_out(canonical)

    def make_real_parent(self, canonical: str) -> None:
        """A place that may really be written to can lie in a folder that only the mirror has: then make it really."""
        folder = canonical.rpartition("/")[0] or "/"
        if mode_of(folder) is None and mode_of(self.mirror(folder)) is not None:
            posix_makedirs(folder)

    def _make_folder(self, canonical: str) -> None:
        try:
            posix.mkdir(self.mirror(canonical), 0o777)
        except FileExistsError:
            return  # another process was quicker
        known = posix.stat(canonical)
        posix.chmod(self.mirror(canonical), stat.S_IMODE(known.st_mode) | 0o700)
        copy_times(known, self.mirror(canonical))

    def names(self, canonical: str) -> list[str]:
        """What is in a folder: the originals in their own order, as in a run without us, then what was added."""
        seen: dict[str, None] = {}
        mirrored = self.mirror(canonical) if canonical != "/" else self.files
        mode = mode_of(mirrored)
        below = "" if canonical == "/" else canonical
        if self.is_gone(canonical):
            if mode is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), canonical)
        else:
            try:
                seen = dict.fromkeys(posix.listdir(canonical))
            except OSError:
                if mode is None:
                    raise
            gone = self.journal.gone
            seen = {name: None for name in seen if f"{below}/{name}" not in gone} if gone else seen
        if mode is not None:
            seen.update(dict.fromkeys(posix.listdir(mirrored)))
        if below == self._scratch_parent:
            seen.pop(self._scratch_name, None)
        return list(seen)


def mode_of(path: str) -> int | None:
    try:
        return posix.lstat(path).st_mode
    except (OSError, ValueError):
        return None


def posix_makedirs(folder: str) -> None:
    if mode_of(folder) is None:
        posix_makedirs(folder.rpartition("/")[0] or "/")
        try:
            posix.mkdir(folder, 0o700)
        except FileExistsError:
            pass


# Folders of the user's without symbolic links: a file in one is where its name says, without a system call.

# One question for each file costs less than to look through the folder, until it was asked this often.
_ASKED_BEFORE_LOOKING = 50
# Looking through a larger folder would take noticeably long.
_MOST_ENTRIES = 20_000
_MOST_COUNTED_FOLDERS = 10_000


class LinkFreeFolders:
    """Folders of originals, which no trial changes: what is known once stays true."""

    def __init__(self) -> None:
        self.folders: set[str] = set()
        self._asked: dict[str, int] = {}

    def ask(self, folder: str) -> None:
        """A file in it was asked for; when that happens often, find out."""
        asked = self._asked.get(folder, 0) + 1
        if asked > _ASKED_BEFORE_LOOKING:
            return
        if len(self._asked) > _MOST_COUNTED_FOLDERS:
            self._asked.clear()
        self._asked[folder] = asked
        if asked == _ASKED_BEFORE_LOOKING and _has_no_links(folder):
            self.folders.add(folder)


def _has_no_links(folder: str) -> bool:
    try:
        with posix.scandir(folder or "/") as entries:
            for number, entry in enumerate(entries):
                if number > _MOST_ENTRIES or entry.is_symlink():
                    return False
    except OSError:
        return False
    return True


# From what the script passes (text, bytes, path objects, descriptors, dir_fd) to a path, and back.


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
    behind = path_of_descriptor(dir_fd)
    return None if behind is None else f"{overlay.script_path(behind)}/{path}"


def path_behind(asked: Any, overlay: Overlay, dir_fd: int | None = None) -> str | None:
    """The same for what may be a descriptor: then the path of what is open, as the script knows it."""
    if type(asked) is not int:
        return path_of(asked, overlay, dir_fd)
    behind = path_of_descriptor(asked)
    return None if behind is None else overlay.script_path(behind)


def redirect_read(path: Any, overlay: Overlay, dir_fd: int | None, follow: bool) -> str | None:
    """Where to look for what is only looked at; None: where the script says, by its own name."""
    asked = None
    try:
        asked = path_of(path, overlay, dir_fd)
        where = overlay.path_for_reading(asked, follow) if asked else None
    except OSError as error:
        rename_in_error(error, path)
        raise
    except Exception:
        where = None
    if where is None and dir_fd is not None:
        return asked  # the folder that is open may be the mirror of the one that has it
    return where


def check_can_add(overlay: Overlay, folder: str, canonical: str) -> None:
    """A trial must fail where the user's own folder would not have let the script make or remove the entry."""
    if overlay.shows_original(folder or "/") and not posix.access(folder or "/", os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), canonical)


@contextmanager
def errors_named_after(asked: Any, second: Any = None) -> Iterator[None]:
    """Errors name the paths that the script gave."""
    try:
        yield
    except OSError as error:
        rename_in_error(error, asked, second)
        raise


def rename_in_error(error: OSError, asked: Any, second: Any = None) -> None:
    if error.filename is not None:
        error.filename = asked
    if second is not None:
        error.filename2 = second
