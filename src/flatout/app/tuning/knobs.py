"""What `flatout tune` may turn: each `--knob` checked against remedies, the command and its config files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flatout.errors import FlatoutError
from flatout.feed.processors import processors
from flatout.launch.profile import read_profile
from flatout.records.tune import Knob
from flatout.remedies.catalogue import known
from flatout.source.syntax.config_files import torch_setting
from flatout.tune.command import names_file, names_override
from flatout.tune.configs.copies import check
from flatout.tune.knobs import AUTO, Written, distinct, read

# Names that people know. A batch size is meant as such; the remedy's own value is how many times as large.
SIZE = "batch_size"
_ALIASES = {
    SIZE: "batch.size",
    "workers": "loader.workers",
    "num_workers": "loader.workers",
    "prefetch": "loader.prefetch",
    "prefetch_factor": "loader.prefetch",
}
_MEANINGS = {"batch.size": "batch_size", "loader.workers": "num_workers", "loader.prefetch": "prefetch_factor"}
_LOSSLESS = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
_NUMERIC = ("amp", "precision", "tf32", "compile", "cudnn_benchmark")
# Workers that wait for storage need no processor, so more of them than processors may help.
_WORKERS_PER_PROCESSOR = 2
_TIMES = (1, 2, 4, 8, 16, 32, 64)
_PREFETCH = (1, 2, 4, 8, 16)


def knobs_of(words: Sequence[str], command: Sequence[str], cwd: Path) -> tuple[Knob, ...]:
    """Raises FlatoutError with the first mistake."""
    if not words:
        raise FlatoutError("nothing to tune: give a knob, as --knob workers=auto or --knob batch_size=4,8,16")
    written = [read(word) for word in words]
    return distinct(_knob(one, command, cwd, is_alone=len(written) == 1) for one in written)


def remedies_for(knob: Knob, value: Any) -> dict[str, Any]:
    """What a value of a remedy's knob asks for; nothing where it stands for the script as it is."""
    if value is False or (knob.target == "batch.size" and value == 1 and knob.name != SIZE):
        return {}
    if knob.name == SIZE and knob.target == "batch.size":
        return {knob.target: {"size": value, "rate": "auto"}}
    if knob.target == "batch.size" and isinstance(value, int):
        return {knob.target: {"times": value, "rate": "auto"}}
    return {knob.target: value}


def _knob(one: Written, command: Sequence[str], cwd: Path, is_alone: bool) -> Knob:
    if one.kind == "config":
        return _config(one, command, cwd)
    if one.kind == "flag" or names_override(command, one.name):
        if one.values == (AUTO,):
            raise FlatoutError(f"--knob {one.name}=auto: only workers, prefetch and batch_size find their own values")
        found = torch_setting(tuple(one.name.lstrip("-").split(".")), on_command_line=True) or ""
        return Knob(one.name, "flag", one.name, one.values, _safety(found), meaning=found)
    return _remedy(one, is_alone)


def _config(one: Written, command: Sequence[str], cwd: Path) -> Knob:
    if not names_file(command, one.file):
        raise FlatoutError(
            f"--knob {one.name}: the command does not name {one.file!r}, so a copy of it could not be handed over; "
            f"write it as in the command"
        )
    check(cwd / one.file, one.target, one.values)
    found = torch_setting(tuple(one.target.split("."))) or ""
    return Knob(one.name, "config", one.target, one.values, _safety(found), one.file, found)


def _remedy(one: Written, is_alone: bool) -> Knob:
    target = _ALIASES.get(one.name, one.name)
    if target not in known():
        names = ", ".join(sorted({*known(), *_ALIASES}))
        raise FlatoutError(f"--knob {one.name}: no remedy is called so (flags begin with --); there are {names}")
    values = _values(one, target, is_alone)
    name = target if one.name == SIZE and one.values == (AUTO,) else one.name
    knob = Knob(name, "remedy", target, values, known()[target].safety, meaning=_MEANINGS.get(target, ""))
    for value in values:
        try:
            read_profile(None, remedies_for(knob, value))
        except FlatoutError as error:
            raise FlatoutError(f"--knob {one.name}: {error}") from None
    return knob


def _values(one: Written, target: str, is_alone: bool) -> tuple[Any, ...]:
    if one.values != (AUTO,):
        return tuple(_switch(value) for value in one.values)
    if target == "loader.workers":
        most = max(2, math.floor(processors()) * _WORKERS_PER_PROCESSOR)
        # Beside other knobs a ladder will do: each step of it is a factor in the number of settings.
        ladder = sorted({0, most, *(2**n for n in range(most.bit_length()) if 2**n <= most)})
        return tuple(range(most + 1)) if is_alone else tuple(ladder)
    if target == "loader.prefetch":
        return _PREFETCH
    if target == "batch.size":
        return _TIMES
    raise FlatoutError(f"--knob {one.name}=auto: only workers, prefetch and batch_size find their own values")


def _switch(value: Any) -> Any:
    """`true`, `off` and the like are switches; numbers stay numbers."""
    words = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


def _safety(found: str) -> str:
    """Of a flag or a key by what it is known to set; anything else may change what is learnt."""
    return "lossless" if found in _LOSSLESS else "numeric" if found in _NUMERIC else "training"
