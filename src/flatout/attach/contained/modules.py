"""Python's own reading and writing of modules, which goes by ways of its own."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from typing import Any

from .asking import path_of
from .overlay import Overlay
from .references import References, stand_in


def contain_modules(overlay: Overlay, references: References) -> None:
    """What was compiled is kept beside installed packages only, and a module that the script has written is found."""
    installed = tuple(f"{folder}/" for folder in {sys.prefix, sys.base_prefix})
    keep, get, open_code = SourceFileLoader.set_data, SourceFileLoader.get_data, io.open_code

    def set_data(self: Any, path: Any, data: Any, **kwargs: Any) -> None:
        if str(path).startswith(installed) and not overlay.places.contain(str(path)):
            keep(self, path, data, **kwargs)

    def get_data(self: Any, path: Any) -> bytes:
        return get(self, _seen(overlay, path))

    references.replace_late(SourceFileLoader, "set_data", set_data)
    references.replace_late(SourceFileLoader, "get_data", get_data)
    references.replace(io, "open_code", stand_in(open_code, _of_code(overlay, open_code), "io"))


def _of_code(overlay: Overlay, open_code: Callable[..., Any]) -> Callable[..., Any]:
    return lambda path: open_code(_seen(overlay, path))


def _seen(overlay: Overlay, path: Any) -> Any:
    if not overlay.words[0]:
        return path
    try:
        asked = path_of(path, overlay)
        return (overlay.for_reading(asked) if asked else None) or path
    except Exception:
        return path  # an import must not fail for it
