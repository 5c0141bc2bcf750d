"""Libraries that read or write files by themselves, past Python: they are given the path in the scratch folder.

For each: the function or method, which argument is the path, and what the library does with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

from ...imports import after_import
from .open_calls import OpenCalls, prepare_parent
from .overlay import Overlay, path_of
from .references import CONTAINED, References, as_builtin

_READ, _ANEW, _UPDATE = "read", "anew", "update"
_FLAGS = {_ANEW: os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _UPDATE: os.O_RDWR | os.O_CREAT}
# A database larger than this is not copied: it is opened to be read only.
_MOST_COPIED_BYTES = 1 << 30


class Calls(NamedTuple):
    """Functions or methods of a module that take a path in the same place and do the same with it."""

    names: str  # within the module, `Class.method` or a function
    position: int  # of the path, `self` counted
    keyword: str
    way: str | Callable[[Mapping[str, Any], tuple[Any, ...]], str]


def _argument(kwargs: Mapping[str, Any], args: tuple[Any, ...], name: str, position: int) -> Any:
    return kwargs.get(name, args[position] if len(args) > position else None)


def _by_mode(position: int) -> Callable[[Mapping[str, Any], tuple[Any, ...]], str]:
    """For those that have an argument like that of `open`."""

    def way(kwargs: Mapping[str, Any], args: tuple[Any, ...]) -> str:
        mode = str(_argument(kwargs, args, "mode", position) or "r")
        return _READ if mode in ("r", "rb") else _UPDATE if "+" in mode or "a" in mode else _ANEW

    return way


def _from_file_way(kwargs: Mapping[str, Any], args: tuple[Any, ...]) -> str:
    """torch.from_file: what is shared is written back."""
    return _UPDATE if _argument(kwargs, args, "shared", 1) else _READ


_CALLS: dict[str, tuple[Calls, ...]] = {
    "cv2": (
        Calls("imwrite imwritemulti VideoWriter", 0, "filename", _ANEW),
        Calls("imread imreadmulti VideoCapture", 0, "filename", _READ),
    ),
    "h5py._hl.files": (Calls("File.__init__", 1, "name", _by_mode(2)),),
    "safetensors": (Calls("serialize_file", 1, "filename", _ANEW), Calls("safe_open", 0, "filename", _READ)),
    "pyarrow.parquet.core": (
        Calls("ParquetWriter.__init__", 1, "where", _ANEW),
        Calls("ParquetFile.__init__", 1, "source", _READ),
        Calls("ParquetDataset.__init__", 1, "path_or_paths", _READ),
        Calls("read_table", 0, "source", _READ),
        Calls("read_schema read_metadata", 0, "where", _READ),
    ),
    "torchvision.io.image": (Calls("write_file", 0, "filename", _ANEW), Calls("read_file", 0, "path", _READ)),
    "soundfile": (Calls("SoundFile.__init__", 1, "file", _by_mode(2)),),
    "imageio_ffmpeg": (Calls("write_frames", 0, "path", _ANEW), Calls("read_frames", 0, "path", _READ)),
    "matplotlib.animation": (Calls("MovieWriter.setup FileMovieWriter.setup", 2, "outfile", _ANEW),),
    "pyarrow.feather": (Calls("write_feather", 1, "dest", _ANEW), Calls("read_table", 0, "source", _READ)),
    "polars.dataframe.frame": tuple(
        Calls(f"DataFrame.write_{kind}", 1, "file", _ANEW) for kind in ("csv", "parquet", "ipc", "ndjson")
    ),
    "tables": (Calls("open_file", 0, "filename", _by_mode(1)),),
    "SimpleITK": (Calls("WriteImage", 1, "fileName", _ANEW), Calls("ReadImage", 0, "fileName", _READ)),
    "av": (Calls("open", 0, "file", _by_mode(1)),),
    "torch": (
        Calls("_C.PyTorchFileWriter.__init__", 1, "file_name", _ANEW),
        Calls("_C.PyTorchFileReader.__init__", 1, "file_name", _READ),
        Calls("_C.import_ir_module", 1, "filename", _READ),
        Calls("from_file UntypedStorage.from_file", 0, "filename", _from_file_way),
    ),
    "torch.jit._script": (Calls("RecursiveScriptModule.save", 1, "f", _ANEW),),
    "torch.autograd.profiler": (Calls("profile.export_chrome_trace", 1, "path", _ANEW),),
    "torch.distributed": (Calls("FileStore.__init__", 1, "file_name", _UPDATE),),
}


class Libraries:
    def __init__(self, overlay: Overlay, opening: OpenCalls, references: References) -> None:
        self._overlay = overlay
        self._opening = opening
        self._references = references

    def wait(self) -> None:
        """For each to be imported."""
        for module, rows in _CALLS.items():
            for row in rows:
                after_import(module, partial(self._wrap, row.names, partial(self._redirect, row)))
        after_import("sqlite3.dbapi2", partial(self._wrap, "connect", self._connect))
        after_import("sqlite3", partial(self._wrap, "connect", self._connect))
        after_import("lmdb", partial(self._wrap, "open Environment", self._open_lmdb))
        after_import("wandb", self._watch_wandb)
        after_import("tensorboard.compat", _without_tensorflow)

    def _wrap(self, names: str, call: Callable[..., Any], module: ModuleType) -> None:
        """Put `call`, which gets the original as its first argument, in the place of each."""
        for path in names.split():
            owner: Any = module
            *within, name = path.split(".")
            for part in within:
                owner = getattr(owner, part, None)
            original = getattr(owner, name, None)
            if owner is not None and original is not None and not getattr(original, CONTAINED, False):
                self._put(owner, name, original, partial(call, original))

    def _put(self, owner: Any, name: str, original: Any, call: Callable[..., Any]) -> None:
        if isinstance(owner, ModuleType):
            value = as_builtin(original, call, owner.__name__)
        elif isinstance(vars(owner).get(name), staticmethod | classmethod) or not callable(vars(owner).get(name)):
            value = staticmethod(call)
        else:
            value = _method(original, call)
        self._references.replace(owner, name, value)

    def _redirect(self, row: Calls, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        way = row.way if isinstance(row.way, str) else row.way(kwargs, args)
        if row.keyword in kwargs:
            kwargs[row.keyword] = self._where(kwargs[row.keyword], way)
        elif len(args) > row.position:
            at = row.position
            args = (*args[:at], self._where(args[at], way), *args[at + 1 :])
        return original(*args, **kwargs)

    def _where(self, asked: Any, way: str) -> Any:
        """In the form it came in. A library that cannot write there says so in its own words."""
        path = path_of(asked, self._overlay) if isinstance(asked, str | bytes | os.PathLike) else None
        if path is None or "://" in path:
            return asked
        where = self._to_read(path) if way == _READ else self._to_write(path, way)
        if where is None:
            return asked
        return os.fsencode(where) if isinstance(asked, bytes) else where

    def _to_read(self, path: str) -> str | None:
        try:
            return self._overlay.path_for_reading(path) if self._overlay.words[0] else None
        except (OSError, ValueError):
            return None

    def _to_write(self, path: str, way: str) -> str:
        canonical = self._overlay.resolve(path)
        try:
            return self._opening.path_for_writing(canonical, _FLAGS[way])
        except OSError:
            return self._overlay.mirror(canonical)

    # Those with a way of their own

    def _connect(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        asked = args[0] if args else kwargs.pop("database", None)
        uri = bool(_argument(kwargs, args, "uri", 7))
        where, read_only = self._database(asked, uri)
        if read_only and not uri:
            where, kwargs["uri"] = f"file:{quote(where)}?mode=ro", True
            args = args[:7]
        return original(where, *args[1:], **kwargs)

    def _database(self, asked: Any, uri: bool) -> tuple[Any, bool]:
        """Where it is to be opened, and whether only to be read."""
        path = path_of(asked, self._overlay) if isinstance(asked, str | bytes | os.PathLike) else None
        if path is None or path == ":memory:":
            return asked, False
        if uri and path.startswith("file:"):
            parts = urlsplit(path)
            query, file = parse_qs(parts.query), unquote(parts.path)
            if not file or file == ":memory:" or query.get("mode") == ["memory"]:
                return asked, False
            way = _READ if query.get("mode") == ["ro"] or query.get("immutable") == ["1"] else _UPDATE
            return f"file:{quote(self._where(file, way))}{'?' + parts.query if parts.query else ''}", False
        if self._is_too_large(path):
            return self._where(path, _READ), True
        for suffix in ("-wal", "-journal"):
            if os.path.exists(path + suffix):
                self._where(path + suffix, _UPDATE)
        return self._where(path, _UPDATE), False

    def _is_too_large(self, path: str) -> bool:
        """And would have to be copied."""
        canonical = self._overlay.resolve(path)
        if not self._overlay.places.is_contained(canonical) or self._overlay.real_path(canonical) != canonical:
            return False
        return os.path.exists(canonical) and os.path.getsize(canonical) > _MOST_COPIED_BYTES

    def _open_lmdb(self, original: Callable[..., Any], path: Any, *args: Any, **kwargs: Any) -> Any:
        data = os.path.join(os.fsdecode(path), "data.mdb") if kwargs.get("subdir", True) else os.fsdecode(path)
        canonical = self._overlay.resolve(os.fsdecode(path))
        if kwargs.get("readonly") or self._is_too_large(data):
            # Its lock file would lie beside the user's data.
            where = self._where(path, _READ)
            return original(where, *args, **{**kwargs, "readonly": True, "lock": False, "create": False})
        if not self._overlay.places.is_contained(canonical):
            return original(path, *args, **kwargs)
        if self._overlay.mode(canonical) is not None:
            return original(self._overlay.copy_up_tree(canonical), *args, **kwargs)
        prepare_parent(self._overlay, canonical)
        return original(self._overlay.mirror(canonical), *args, **kwargs)

    def _watch_wandb(self, module: ModuleType) -> None:
        """A service of its own does the writing, and the sending, which must not happen either."""
        os.environ["WANDB_MODE"] = "offline" if os.environ.get("WANDB_MODE") != "disabled" else "disabled"
        os.environ["WANDB_DIR"] = self._overlay.scratch
        self._wrap("init", self._init_wandb, module)

    def _init_wandb(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("mode") not in (None, "disabled"):
            kwargs["mode"] = "offline"
        if kwargs.get("dir") is not None:
            kwargs["dir"] = self._overlay.scratch
        return original(*args, **kwargs)


def _method(original: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call(self, *args, **kwargs)

    method.__name__, method.__doc__ = getattr(original, "__name__", "method"), getattr(original, "__doc__", None)
    method.__wrapped__ = original  # type: ignore[attr-defined]
    return method


def _without_tensorflow(compat: ModuleType) -> None:
    """TensorBoard writes by TensorFlow where that is installed, past Python, unless it finds this."""
    name = f"{compat.__name__}.notf"
    sys.modules.setdefault(name, ModuleType(name))
    if not hasattr(compat, "notf"):
        compat.notf = sys.modules[name]  # type: ignore[attr-defined]
