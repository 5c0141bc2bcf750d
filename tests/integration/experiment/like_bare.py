"""The same random operations on two like trees, one bare and one contained: the answers must be the same.

In the end the trees must look the same too, and the contained one must not have been touched.
"""

from __future__ import annotations

import errno
import glob
import os
import random
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flatout.attach.trial import sandbox

_OPERATIONS = 40
Answers = list[tuple[str, str, str, str]]


def build(root: str) -> None:
    for folder in ("", "a", "a/b", "c", "c/a", "c/a/b"):
        os.makedirs(f"{root}/{folder}", exist_ok=True)
    for name in ("b", "a/a", "a/b/a", "c/b", "c/a/a", "c/a/b/c"):
        Path(root, name).write_text(name)
    for name, target in {"l": "a", "a/l": "../b", "c/l": "nowhere", "a/b/l": f"{root}/c"}.items():
        os.symlink(target, f"{root}/{name}")


def some_path(dice: random.Random) -> str:
    """Of a few names, so that they meet; at most one step up, so that it stays below the trees."""
    parts = [dice.choice("abcl")] + [dice.choice("abclabcl.^") for _ in range(dice.randint(0, 3))]
    return "/".join(parts).replace("^", "..", 1).replace("/^", "")


def write(path: str, mode: str) -> str:
    with open(path, mode) as file:
        file.write("w")
        return str(file.name)


def update(path: str) -> str:
    with open(path, "r+") as file:
        file.write("Z")
        file.seek(0)
        return file.read()


def entries(path: str) -> list[tuple[Any, ...]]:
    return sorted((e.name, e.path, e.is_dir(), e.is_file(), e.is_symlink()) for e in os.scandir(path))


def in_folder(folder: str, call: Callable[[int], Any]) -> Any:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return sorted(os.listdir(descriptor)), call(descriptor)
    finally:
        os.close(descriptor)


def copied(source: str, target: str) -> None:
    # Into itself it would not end, and how deep it comes is chance.
    if not (os.path.realpath(target) + "/").startswith(os.path.realpath(source) + "/"):
        shutil.copytree(source, target, symlinks=True)


def kinds(path: str) -> tuple[bool, ...]:
    return os.path.exists(path), os.path.isdir(path), os.path.isfile(path), os.path.islink(path)


READING: dict[str, Callable[[str, str], Any]] = {
    "read": lambda p, q: Path(p).read_text(),
    "listdir": lambda p, q: sorted(os.listdir(p)),
    "scandir": lambda p, q: entries(p),
    "stat": lambda p, q: oct(os.stat(p).st_mode),
    "lstat": lambda p, q: oct(os.lstat(p).st_mode),
    "readlink": lambda p, q: os.readlink(p),
    "kinds": lambda p, q: kinds(p),
    "chdir": lambda p, q: os.chdir(p),
}
CHANGING: dict[str, Callable[[str, str], Any]] = {
    "w": lambda p, q: write(p, "w"),
    "a": lambda p, q: write(p, "a"),
    "x": lambda p, q: write(p, "x"),
    "r+": lambda p, q: update(p),
    "unlink": lambda p, q: os.unlink(p),
    "rmdir": lambda p, q: os.rmdir(p),
    "mkdir": lambda p, q: os.mkdir(p),
    "makedirs": lambda p, q: os.makedirs(p, exist_ok=True),
    "rename": lambda p, q: os.rename(p, q),
    "symlink": lambda p, q: os.symlink(q, p),
    "link": lambda p, q: os.link(p, q),
    "rmtree": lambda p, q: shutil.rmtree(p),
    "copy": lambda p, q: shutil.copy(p, q),
    "copytree": copied,
    # Folders can still be entered by who is not root.
    "chmod": lambda p, q: os.chmod(p, 0o750),
    "truncate": lambda p, q: os.truncate(p, 1),
    "open in folder": lambda p, q: in_folder(q, lambda d: os.close(os.open(p, os.O_WRONLY | os.O_CREAT, dir_fd=d))),
    "unlink in folder": lambda p, q: in_folder(q, lambda d: os.unlink(p, dir_fd=d)),
}


def answer(call: Callable[[], Any]) -> str:
    try:
        return str(call())
    except OSError as error:
        # Where several things are wrong at once, which of them is told does not matter.
        return f"not possible: {error.filename}, {error.filename2}" if error.errno in errno.errorcode else "?"


def play(seed: int, root: str) -> Answers:
    dice, answers = random.Random(seed), Answers()
    for _ in range(_OPERATIONS):
        name = dice.choice([*READING, *CHANGING])
        p, q = some_path(dice), some_path(dice)
        if name in CHANGING:
            # A name that ends in dots cannot be made or removed, whatever it stands for.
            p, q = (re.sub(r"(/\.+)+$", "", path) for path in (p, q))
        call = READING.get(name) or CHANGING[name]
        answers.append((name, p, q, answer(lambda call=call, p=p, q=q: call(p, q)).replace(root, "@")))  # type: ignore[misc]
        if dice.random() < 0.1:
            answer(lambda: os.chdir(root))
    answer(lambda: os.chdir(root))
    return answers


def look(root: str) -> list[tuple[str, str, str]]:
    seen = [(path, "glob", "") for path in (*glob.glob("*/*"), *map(str, Path().glob("*/*/*")))]
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = f"{folder}/{name}"
            mode = os.lstat(path).st_mode
            content = os.readlink(path) if stat.S_ISLNK(mode) else ""
            content = Path(path).read_text() if stat.S_ISREG(mode) else content
            seen.append((path.replace(root, "@"), oct(mode), content.replace(root, "@")))
    return sorted(seen)


def untouched(root: str) -> list[tuple[str, int, int, str]]:
    paths = [root, *(f"{folder}/{name}" for folder, folders, files in os.walk(root) for name in folders + files)]
    known = [(path, os.lstat(path)) for path in sorted(paths)]
    return [(p, k.st_mode, k.st_mtime_ns, Path(p).read_text() if stat.S_ISREG(k.st_mode) else "") for p, k in known]


def compare(seed: int, base: str) -> str | None:
    """What differs, or None."""
    # Deep enough that the steps up of a few links in turn end below `base`.
    bare, own = (f"{base}/{name}/n/n/n/n/t" for name in ("bare", "contained"))
    build(bare)
    os.chdir(bare)
    expected = play(seed, bare), look(bare)
    build(own)
    os.chdir(own)
    before = untouched(own)
    sandbox.begin(f"{base}/scratch", [f"{base}/contained"], lambda text: None)
    try:
        found = play(seed, own), look(own)
    finally:
        sandbox.end()
        os.chdir("/")
    if untouched(own) != before:
        return "touched"
    for one, other in zip(expected[0], found[0], strict=True):
        if one != other:
            return f"bare {one}, contained {other}"
    return None if expected[1] == found[1] else f"trees: {set(expected[1]) ^ set(found[1])}"


if __name__ == "__main__":
    first, last = int(sys.argv[1]), int(sys.argv[2])
    alike = 0
    for number in range(first, last):
        with tempfile.TemporaryDirectory() as place:
            difference = compare(number, os.path.realpath(place))
        if difference:
            print(f"seed {number}: {difference[:500]}")
        alike += difference is None
    print(f"{alike} alike")
