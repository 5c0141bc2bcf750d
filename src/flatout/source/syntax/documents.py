"""Files as texts that can be edited, and back to bytes: encoding, byte order mark and notebook format are kept."""

from __future__ import annotations

import ast
import io
import os
import stat
import tempfile
import tokenize
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from flatout.errors import FlatoutError
from flatout.source.syntax import files
from flatout.source.syntax.config_files import UncertainConfig, parse_config
from flatout.source.syntax.notebook import cell_sources, parse_notebook, replace_cell_sources

# Texts by the number of their cell; a file that is not a notebook has one, under None.
Texts = dict[int | None, str]


def read_texts(file: str, data: bytes) -> Texts:
    """Raises FlatoutError where the bytes are not text, or would not come back as they were."""
    text = _decode(file, data)
    return dict(cell_sources(text).items()) if file.endswith(".ipynb") else {None: text}


def encode_texts(file: str, data: bytes, changed: Mapping[int | None, str]) -> bytes:
    """The bytes of a file in which some texts are changed."""
    text = _decode(file, data)
    if file.endswith(".ipynb"):
        text = replace_cell_sources(text, {cell: source for cell, source in changed.items() if cell is not None})
    else:
        text = changed.get(None, text)
    try:
        return text.encode(_encoding(file, data))
    except UnicodeEncodeError as error:
        raise FlatoutError("cannot hold the fix in the encoding it declares") from error


def _decode(file: str, data: bytes) -> str:
    try:
        encoding = _encoding(file, data)
        text = data.decode(encoding)
        if text.encode(encoding) == data:
            return text
    except (SyntaxError, UnicodeError, LookupError):
        pass
    raise FlatoutError("cannot be edited without changing more of it than the fix")


def _encoding(file: str, data: bytes) -> str:
    return "utf-8" if file.endswith(files.CONFIGS) else tokenize.detect_encoding(io.BytesIO(data).readline)[0]


def soundness(file: str, data: bytes) -> int:
    """0: it cannot be read. 1: it can be parsed. 2: it compiles. A fix must not lower it."""
    try:
        if file.endswith(files.CONFIGS):
            text = data.decode().replace("\r\n", "\n").replace("\r", "\n")
            parse_config(file, lambda _: text)
            return 1
        text = files.decode_source(data)
        text = parse_notebook(text).text if file.endswith(".ipynb") else text
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
            with suppress(SyntaxError, ValueError, RecursionError):
                compile(tree, file, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
                return 2
            return 1
    except (FlatoutError, UncertainConfig, SyntaxError, ValueError, RecursionError, MemoryError):
        return 0


def read_bytes(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise FlatoutError(f"cannot be read ({error.strerror or error})") from error


def read_writable(file: str) -> bytes:
    """The bytes of a file that will be written back. Raises FlatoutError if there is no permission for that."""
    path = os.path.realpath(file)
    data = read_bytes(path)
    if not os.access(path, os.W_OK) or not os.access(os.path.dirname(path), os.W_OK):
        raise FlatoutError("cannot be written: no permission for it or its folder")
    return data


def replace_file(file: str, before: bytes, after: bytes) -> None:
    """Writes atomically. A file that was changed meanwhile is left alone; links are followed, the mode is kept."""
    path = Path(os.path.realpath(file))
    try:
        if path.read_bytes() != before:
            raise FlatoutError(f"{file} was changed by someone else meanwhile; it is left as it is")
        handle, beside = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".flatout", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(after)
                out.flush()
                os.fsync(out.fileno())
            os.chmod(beside, stat.S_IMODE(path.stat().st_mode))
            os.replace(beside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise
    except OSError as error:
        raise FlatoutError(f"{file} cannot be written ({error.strerror or error}); it is left as it is") from error
