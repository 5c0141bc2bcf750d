"""Joins what a run was configured with: its command line, the config files that names, or the one it takes without."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from flatout.diagnose.configured import command
from flatout.diagnose.configured.beside import defaults
from flatout.diagnose.configured.call import keywords
from flatout.diagnose.source import whole_file
from flatout.records.configured import Configured, Setting
from flatout.records.evidence import LoaderUse
from flatout.records.report import Location
from flatout.source.syntax.config_files import (
    ConfigValue,
    ConfigValues,
    KeyPath,
    Reader,
    UncertainConfig,
    parse_config,
    torch_setting,
)
from flatout.store.run import StoredRun


def configured(run: StoredRun, loaders: Sequence[LoaderUse]) -> Configured:
    """Nothing here may fail a diagnosis: what cannot be read is not configured."""

    def read(file: str) -> str:
        return whole_file(run, file)

    found = settings_of(run.manifest.argv, Path(run.manifest.cwd), read)
    use = next((loader for loader in loaders if loader.trains), None)
    made_at = None if use is None else use.made_at
    call = None if made_at is None else keywords(read(made_at.file), made_at.line)
    return Configured(found, call)


def settings_of(argv: Sequence[str], cwd: Path, read: Reader) -> tuple[Setting, ...]:
    """One setting a meaning: the command line beats files. Where two places disagree, there is none."""
    words = command.words_of_script(argv)
    given = _agreed(command.settings(words))
    in_files = _agreed(_of(leaf, path) for path, leaf in _leaves(argv, words, cwd, read).items())
    merged = {**in_files, **given}
    return tuple(setting for setting in merged.values() if setting is not None)


def _agreed(found: Iterator[Setting | None]) -> dict[str, Setting | None]:
    """By meaning; None where it was set to different values, as for several loaders."""
    result: dict[str, Setting | None] = {}
    for setting in found:
        if setting is None:
            continue
        before = result.get(setting.name, setting)
        result[setting.name] = setting if before is not None and before.value == setting.value else None
    return result


def _of(leaf: ConfigValue, path: KeyPath) -> Setting | None:
    name = torch_setting(path)
    if name is None or not isinstance(leaf.value, bool | int | float | str):
        return None
    over = None if leaf.over is None else _of(leaf.over, path)
    return Setting(name, ".".join(path), leaf.value, Location(leaf.file, leaf.line or 0), over)


def _leaves(argv: Sequence[str], words: Sequence[str], cwd: Path, read: Reader) -> ConfigValues:
    script = command.script_of(argv)
    named = command.config_words(words)
    if not named:
        return defaults(_absolute(script, cwd), words, read) if script else {}
    found: ConfigValues = {}
    for number, name in enumerate(named):
        file = _absolute(name, cwd)
        try:
            # The number keeps two files apart, so that they can disagree.
            leaves = parse_config(str(file), read)
        except UncertainConfig:
            return {}
        found.update({(*_apart(number), *path): leaf for path, leaf in leaves.items()})
    return found


def _apart(number: int) -> KeyPath:
    return () if number == 0 else (f"#{number}",)


def _absolute(name: str, cwd: Path) -> Path:
    return Path(os.path.normpath(cwd / os.path.expanduser(name)))
