"""Joins what a run was configured with: its command line, the config files that names, or the one it takes without."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from flatout.diagnose.source_text import whole_file
from flatout.records.evidence import Configured, Evidence, LoaderUse, Setting, Value
from flatout.records.report import Location
from flatout.records.timeline import SettingLine
from flatout.source.syntax.config_files import (
    CONFIG_SUFFIXES,
    SWITCH_SETTINGS,
    ConfigValue,
    ConfigValues,
    KeyPath,
    Reader,
    UncertainConfig,
    parse_config,
    torch_setting,
)
from flatout.source.syntax.module import parse_text
from flatout.source.syntax.nodes import has_star_arguments
from flatout.store.run import StoredRun

_WORDS = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_ASSIGNED = re.compile(r"\+{0,2}(?P<key>[A-Za-z_][\w.]*)=(?P<value>.+)")
_FOLDERS = ("configs", "config", "conf", "cfg", "cfgs")
_MOST_SOURCES, _MOST_FILES = 100, 12
_OF_LOADER = ("num_workers", "batch_size", "prefetch_factor", "pin_memory", "persistent_workers")
_OF_TORCH = ("cudnn_benchmark", "cudnn_deterministic", "matmul_precision", "default_dtype", "compiled")
# Under which names torch's own state answers for a setting.
_LIVE_AS = {"tf32": "matmul_allow_tf32", "compile": "compiled", "amp": "grad_dtypes", "precision": "grad_dtypes"}
_REDUCED = {"bfloat16", "float16", "bf16", "fp16", "16", "half"}


def read_configuration(run: StoredRun, loaders: Sequence[LoaderUse]) -> Configured:
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
    words = words_of_script(argv)
    given = _agreed(command_settings(words))
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
    script = script_of(argv)
    named = config_words(words)
    if not named:
        return defaults(_absolute(script, cwd), words, read) if script else {}
    found: ConfigValues = {}
    for number, name in enumerate(named):
        file = _absolute(name, cwd)
        try:
            leaves = parse_config(str(file), read)
        except UncertainConfig:
            return {}
        # The number keeps two files apart, so that they can disagree.
        apart = (f"#{number}",) if number else ()
        found.update({(*apart, *path): leaf for path, leaf in leaves.items()})
    return found


def _absolute(name: str, cwd: Path) -> Path:
    return Path(os.path.normpath(cwd / os.path.expanduser(name)))


# What a command line sets: `--num-workers 8`, `--num_workers=8`, `data.workers_per_gpu=8`, `--amp`, `--no-amp`.


def words_of_script(argv: Sequence[str]) -> list[str]:
    """What the script itself was given: what stands before it belongs to python or a launcher."""
    for at, word in enumerate(argv):
        if word.endswith(".py"):
            return list(argv[at + 1 :])
        if word == "-m" and at + 2 <= len(argv) and "python" in PurePath(argv[0]).name:
            return list(argv[at + 2 :])
    return list(argv[1:])


def script_of(argv: Sequence[str]) -> str | None:
    return next((word for word in argv if word.endswith(".py")), None)


def command_settings(words: Sequence[str]) -> Iterator[Setting]:
    """Those whose meaning is certain."""
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else None
        for key, text in _assignment(word, following):
            found = _setting(key, text, word)
            if found is not None:
                yield found


def _assignment(word: str, following: str | None) -> Iterator[tuple[str, str | None]]:
    if word.startswith("-") and not _NUMBER.fullmatch(word):
        key, equals, text = word.lstrip("-").partition("=")
        yield key, text if equals else following
    elif match := _ASSIGNED.fullmatch(word):
        yield match["key"], match["value"]


def _setting(key: str, text: str | None, word: str) -> Setting | None:
    name = torch_setting(tuple(key.split(".")), on_command_line=True)
    is_switch = word.startswith("-") and "=" not in word
    if name is None:
        off = torch_setting((key[3:],)) if is_switch and key.startswith(("no-", "no_")) else None
        return Setting(off, word, False) if off in SWITCH_SETTINGS and off is not None else None
    value = None if text is None or text.startswith("--") else scalar(text)
    if (
        name in SWITCH_SETTINGS
        and is_switch
        and not isinstance(value, bool)
        and (value is None or precision_on(value) is None)
    ):
        # A bare switch; the word behind it, if any, is something else.
        return Setting(name, word, bool(value) if value in (0, 1) else True)
    return None if value is None else Setting(name, f"{word} {text}" if is_switch else word, value)


def scalar(text: str) -> Value | None:
    """A value as people write it on a command line."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.fullmatch(text):
        value = float(text)
        return int(value) if value.is_integer() else value
    return text or None


def precision_on(value: object) -> bool | None:
    """Whether a precision by its name is a reduced one; None where the name is not known."""
    text = str(value).lower().replace("_", "-").removesuffix("-mixed").removesuffix("-true")
    if text in ("16", "fp16", "bf16", "float16", "bfloat16", "half"):
        return True
    return False if text in ("32", "64", "fp32", "float32", "no", "none", "full") else None


def config_words(words: Sequence[str]) -> list[str]:
    """Words that name a config file, also behind an equals sign; a file to be written is no config."""
    found = []
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        name = word.rpartition("=")[2] if word.startswith("-") and "=" in word else word
        if not name.lower().endswith(CONFIG_SUFFIXES) or name.startswith("-"):
            continue
        option = word.partition("=")[0] if word.startswith("-") else before if before.startswith("-") else ""
        if not option or re.search(r"c(?:onfi|f)g|\bopt\b|^-c$|^-f$|options|param|yaml|settings|file|recipe", option):
            found.append(name)
    return found


# The config that a script takes when none is named: only where its folder leaves no doubt.


def defaults(script: Path, words: Sequence[str], read: Reader) -> ConfigValues:
    """What all configs have in common that the script can have taken. Nothing if it names no such folder or file."""
    folder = script.parent
    try:
        # Looked for first: most scripts have no such folder, and reading their neighbours takes time.
        if not any(_configs(folder / name) for name in (".", *_FOLDERS)):
            return {}
        sources = [script, *sorted(folder.glob("*/*.py")), *sorted(folder.glob("*.py"))][:_MOST_SOURCES]
        literals = "\n".join(read(str(source)) for source in sources)
        candidates = _candidates(folder, words, literals)
    except OSError:
        return {}
    if not candidates or len(candidates) > _MOST_FILES:
        return {}
    try:
        trees = [parse_config(str(file), read) for file in candidates]
    except UncertainConfig:
        return {}
    return _in_common(trees)


def _candidates(folder: Path, words: Sequence[str], literals: str) -> list[Path]:
    beside = [file for file in _configs(folder) if file.suffix != ".py" and _is_named(file.name, literals)]
    if beside:
        return beside if len(beside) == 1 else []
    for name in _FOLDERS:
        files = _configs(folder / name)
        if not files or not _is_named(name, literals):
            continue
        named = [file for file in files if _is_named(file.name, literals)]
        chosen = [file for file in files if file.stem in words]
        return chosen if len(chosen) == 1 else named if len(named) == 1 else files
    return []


def _configs(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(
        file for file in folder.iterdir() if file.suffix.lower() in CONFIG_SUFFIXES and file.name != "__init__.py"
    )


def _is_named(name: str, literals: str) -> bool:
    """As a string of its own, or as a part of a path in one."""
    return re.search(rf"[\"'/]{re.escape(name)}[\"'/]", literals) is not None


def _in_common(trees: Sequence[ConfigValues]) -> ConfigValues:
    first, *rest = trees
    return {
        path: leaf
        for path, leaf in first.items()
        if all(path in tree and tree[path].value == leaf.value for tree in rest)
    }


# How the script makes a DataLoader: which settings stand in the call, and which are left to their defaults.


def keywords(text: str, line: int) -> dict[str, str] | None:
    """Keyword → "literal" or "computed", of the one DataLoader call that holds this line; None where it is unclear."""
    calls = [
        call
        for call, _ in parse_text(text).calls.get("DataLoader", ())
        if call.lineno <= line <= (call.end_lineno or call.lineno)
    ]
    if len(calls) != 1:
        return None
    call = calls[0]
    # What `**settings` or a third positional argument brings cannot be read off here.
    if len(call.args) > 1 or has_star_arguments(call):
        return None
    return {
        str(keyword.arg): "literal" if isinstance(keyword.value, ast.Constant) else "computed"
        for keyword in call.keywords
    }


# Configured against live: every setting that somebody wrote down, and what the living objects had in its place.


def setting_lines(run: Evidence) -> tuple[SettingLine, ...]:
    """Those that were configured first, then the others that count."""
    live = _live(run)
    # Settings of which a finding says that they never arrived.
    lost = {
        key.removesuffix("_configured")
        for finding in run.report.findings
        if finding.family == "config"
        for key in finding.evidence
        if key.endswith("_configured")
    }
    configured = [_line(setting, live, lost) for setting in run.configured.settings]
    named = {_LIVE_AS.get(setting.name, setting.name) for setting in run.configured.settings}
    others = [
        SettingLine(name, None, None, _shown(live[name]), "not configured")
        for name in (*_OF_LOADER, *_OF_TORCH)
        if name in live and name not in named
    ]
    return (*configured, *others)


def _line(setting: Setting, live: dict[str, Any], lost: set[str]) -> SettingLine:
    name = _LIVE_AS.get(setting.name, setting.name)
    value = live.get(name)
    if setting.name in lost:
        state = "lost"
    elif _same(setting.value, value):
        state = "arrived"
    else:
        # Per rank, per accumulation, or in words of its own: a difference that the catalogue finds nothing wrong with.
        state = "other"
    return SettingLine(
        setting.name, _shown(setting.value), _place(setting), _shown(value) if name in live else None, state
    )


def _same(configured: object, live: object) -> bool:
    """Numbers by their value, but 1 is not true; precision by the types that gradients came in."""
    if isinstance(live, dict):
        is_wanted = configured is True or str(configured).lower().removesuffix("-mixed") in _REDUCED
        return is_wanted == bool(_REDUCED & set(live))
    return configured == live and isinstance(configured, bool) == isinstance(live, bool)


def _live(run: Evidence) -> dict[str, Any]:
    torch: dict[str, Any] = run.report.live.get("torch", {})  # type: ignore[assignment]
    use = run.training_loader
    loader = {} if use is None else {name: use.settings.get(name) for name in _OF_LOADER if name in use.settings}
    if use is not None and use.batch_size is not None:
        loader["batch_size"] = use.batch_size
    return {**{name: torch[name] for name in (*_OF_TORCH, *_LIVE_AS.values()) if name in torch}, **loader}


def _place(setting: Setting) -> str:
    if setting.location is None:
        return setting.written
    file = os.path.basename(setting.location.file)
    return f"{file}:{setting.location.line}" if setting.location.line else f"{file}: {setting.written}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(
            f"{name} {share:.0%}" if isinstance(share, float) else str(name) for name, share in value.items()
        )
    return "–" if value is None else str(value)
