"""Which folders a trial may really write to: temporary ones and caches of the tools. All else is the user's."""

from __future__ import annotations

import os
import posix
from collections.abc import Iterable, Mapping, Sequence

_ALWAYS = ("/dev", "/proc", "/sys", "/run", "/tmp", "/var/tmp", "/usr/tmp")
_IN_HOME = (".cache", ".triton", ".nv")
_NAMED_BY = (
    "TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "PYTHONPYCACHEPREFIX",
    "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME",
    "CUDA_CACHE_PATH",
    "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE", "HF_MODULES_CACHE", "TRANSFORMERS_CACHE",
    "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "FLATOUT_RUN_DIR", "FLATOUT_CARRIED",
)  # fmt: skip
_COMPILED = "__pycache__"


class Places:
    """The nearest folder above a path that is marked decides; what has none is contained."""

    def __init__(self, scratch: str, roots: Sequence[str], environ: Mapping[str, str]) -> None:
        # In the order of their say: a root that is the temporary folder itself stays writable, sockets live there.
        self._contained: dict[str, bool] = {}
        self._mark(roots, True)
        # Folders that may be written to, and hold one that may not.
        self.around = frozenset(folder.rpartition("/")[0] for folder in self._contained)
        self._mark(_exempt(environ), False)
        self._mark([scratch], False)

    def _mark(self, folders: Iterable[str], contained: bool) -> None:
        for folder in folders:
            # By both names: the one it is known by and, through links, where it lies.
            for name in (os.path.abspath(folder), os.path.realpath(folder)):
                self._contained[name] = contained

    def contain(self, path: str) -> bool:
        """Of a path that is absolute and free of links."""
        at, compiled = path, False
        while at not in ("", "/"):
            contained = self._contained.get(at)
            if contained is not None:
                return contained
            above, _, name = at.rpartition("/")
            compiled = compiled or name == _COMPILED
            at = above
        # Compiled modules of installed packages; those of the user's own folders are contained with them.
        return not compiled


def is_of_the_system(path: str) -> bool:
    """Links below these are not what they seem (`/proc/self/fd/1` → `pipe:[7]`)."""
    return path.startswith(("/proc/", "/dev/", "/sys/"))


def _exempt(environ: Mapping[str, str]) -> list[str]:
    home = environ.get("HOME") or os.path.expanduser("~")
    named = [environ[name] for name in _NAMED_BY if environ.get(name)]
    return [*_ALWAYS, *(f"{home}/{folder}" for folder in _IN_HOME), *named]


def folder_behind(descriptor: int) -> str | None:
    """The path of an open file or folder, where the system knows one."""
    try:
        path = posix.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None
    return path if path.startswith("/") and not path.endswith(" (deleted)") else None
