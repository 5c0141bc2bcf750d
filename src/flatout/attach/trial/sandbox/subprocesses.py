"""Programs that the script starts: those in Python are contained too, the others are named as not contained."""

from __future__ import annotations

import os
import posix
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .overlay import Overlay
from .references import References, as_builtin

# They write nothing, or only where a cache is.
_HARMLESS = frozenset((
    "nvidia-smi", "nvcc", "ptxas", "fatbinary", "cuobjdump", "nvdisasm", "gcc", "g++", "cc", "c++", "clang", "clang++",
    "ld", "as", "ninja", "cmake", "ldconfig", "lscpu", "uname", "which", "whoami", "hostname", "lspci", "free", "df",
    "openssl", "ldd", "cat", "ls", "echo", "true", "false", "sleep",
))  # fmt: skip
_ATTACH = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PACKAGE = os.path.dirname(_ATTACH)
_BOOTSTRAP = f"{_ATTACH}/bootstrap"
_SHELLS = frozenset(("sh", "bash", "dash", "zsh"))
_CWD, _ENVIRONMENT = 4, 5


class Subprocesses:
    def __init__(self, overlay: Overlay, note: Callable[[dict[str, str]], None]) -> None:
        self._overlay = overlay
        self._note = note
        self._told: set[str] = set()

    def functions(self) -> dict[str, Callable[..., Any]]:
        """What takes the place of those in `os`, by name."""
        return {
            "system": self._of_command(posix.system),
            "posix_spawn": self._of_program(posix.posix_spawn),
            "posix_spawnp": self._of_program(posix.posix_spawnp),
            "execv": self._of_program(posix.execv),
            "execve": self._of_program(posix.execve),
        }

    def install(self, subprocess: Any, references: References) -> None:
        original = subprocess._fork_exec

        def fork_exec(args: Any, executables: Any, *rest: Any) -> Any:
            try:
                self._note_start([os.fsdecode(word) for word in args])
                given = [args, executables, *rest]
                given[_CWD] = self._folder(given[_CWD])
                given[_ENVIRONMENT] = add_bootstrap(given[_ENVIRONMENT])
            except Exception:
                return original(args, executables, *rest)
            return original(*given)

        references.replace(subprocess, "_fork_exec", as_builtin(original, fork_exec, "subprocess"))

    def _folder(self, cwd: Any) -> Any:
        """A working directory that only the mirror has."""
        if cwd is None or not self._overlay.words[0]:
            return cwd
        canonical = self._overlay.resolve(os.fsdecode(cwd))
        return cwd if self._overlay.shows_original(canonical) else self._overlay.real_path(canonical)

    def _of_command(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(command: Any) -> Any:
            self._note_start(["sh", "-c", os.fsdecode(command)])
            return original(command)

        return call

    def _of_program(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, argv: Any, *rest: Any, **kwargs: Any) -> Any:
            try:
                if not isinstance(path, int):
                    self._note_start([os.fsdecode(path), *(os.fsdecode(word) for word in argv[1:])])
                given = [add_bootstrap(rest[0]), *rest[1:]] if rest else []
            except Exception:
                given = [*rest]
            return original(path, argv, *given, **kwargs)

        return call

    def _note_start(self, words: Sequence[str]) -> None:
        try:
            name = find_uncontained_program(words)
        except Exception:
            name = words[0] if words else None
        if name is not None and name not in self._told and len(self._told) < 100:
            self._told.add(name)
            self._note({"program": name})


def find_uncontained_program(words: Sequence[str]) -> str | None:
    """The name of a program whose writes go to the user's files, None if they do not."""
    if not words:
        return None
    name = os.path.basename(words[0])
    if name in _SHELLS and len(words) > 2 and words[1] == "-c":
        inner = words[2].split()
        if not inner or set("|&;<>`$(") & set(words[2]):
            return name
        return find_uncontained_program(inner)
    if re.fullmatch(r"(python|pypy)[\d.]*", name) or words[0] == sys.executable:
        # Programs that we start are given the real paths.
        is_ours = any(word.startswith(f"{_PACKAGE}/") for word in words[1:])
        return f"{name} without site packages" if _is_bare(words[1:]) and not is_ours else None
    if name in _HARMLESS or _is_written_in_python(words[0]):
        return None
    return name


def _is_bare(options: Sequence[str]) -> bool:
    """`-I`, `-E`, `-S`: Python that does not look for what contains it."""
    for word in options:
        if not word.startswith("-") or word.startswith(("-c", "-m", "--")) or word == "-":
            return False
        if set("IES") & set(word[1:].split("X")[0].split("W")[0]):
            return True
    return False


def _is_written_in_python(program: str) -> bool:
    import shutil

    found = shutil.which(program)
    if found is None:
        return False
    with open(found, "rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first


def add_bootstrap(environment: Any) -> Any:
    """The environment of a child, in which it finds what contains it even where the script made a new one.

    In the form it came in: a mapping, or the list of `name=value` that is handed to the system.
    """
    if environment is None:
        return None
    if isinstance(environment, Mapping):
        given = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
    else:
        given = dict(entry.split(b"=", 1) for entry in environment)
    ours = {name: value for name, value in os.environb.items() if name.startswith(b"FLATOUT_")}
    complete = {**ours, **given, b"PYTHONPATH": _python_path(given.get(b"PYTHONPATH", b""))}
    if isinstance(environment, Mapping):
        return complete
    return [name + b"=" + value for name, value in complete.items()]


def _python_path(given: bytes) -> bytes:
    paths = [path for path in given.split(b":") if path]
    bootstrap = os.fsencode(_BOOTSTRAP)
    if any(os.path.realpath(path) == os.path.realpath(bootstrap) for path in paths):
        return given
    return b":".join([bootstrap, *paths])
