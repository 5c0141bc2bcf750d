"""Settings that the user can give a training: options, keys of config files, fields, entries of dicts, constants."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any, Literal

from flatout.records.message import Message, verbatim
from flatout.records.source import Place
from flatout.source.flow.setting_uses import SettingUses
from flatout.source.flow.values import Values
from flatout.source.project.settings import (
    Option,
    find_click_options,
    find_options,
    is_settings_class,
    is_settings_name,
)
from flatout.source.syntax.config_files import TORCH_SETTINGS, ConfigValues, KeyPath, torch_setting
from flatout.source.syntax.module import Function, Module
from flatout.source.syntax.nodes import is_call, names_in
from flatout.source.training.jobs import TrainingJob
from flatout.source.training.loaders import Loader
from flatout.source.training.regions import Training

_READ = re.compile(r"[.\"'](\w+)")
_GIVEN = re.compile(
    r"-(config|cfg|conf|yaml|options|settings|params|hparams)([_-](file|path|name))?[\"']|@hydra\.main|fromfile\(|load_config\("
    r"|\.(ya?ml|json|toml)[\"']\)?[^\n]*\bfor\b|\}\.(ya?ml|json|toml)[\"']|click\.argument\([\"']config"
)
_COMMENT = re.compile(r"(?m)(^|[ \t])#[^\n]*")
_LOADS = ("yaml", "json", "toml", "OmegaConf", "hydra", "fromfile", "exec(", "SourceFileLoader", "import_module")
_CLASSES = re.compile(
    r"dataclass|@define|class \w*(config|args|arguments|options|settings|params|cfg|flags|opts?)\b", re.I
)
# Text without any of these declares no setting. Plain strings: every file is searched for them.
_DECLARING = (
    "add_argument", "DEFINE_", ".option(", "dataclass", "@define", "CfgNode", "CN(", "edict", "EasyDict", "ConfigDict",
    "onfig", "CONFIG", "cfg = ", "CFG = ", "rgs:", "ptions:", "ettings:", "params = ", "args = ", "opt = ", "rguments:",
    "WORKERS", "BATCH_SIZE", "PREFETCH", "PIN_MEMORY", "ACCUM", "CACHE", "_STEPS", "_INTERVAL", "_EVERY", "_FREQ",
)  # fmt: skip
_TREES = ("CfgNode", "CN(", "ConfigDict", "EasyDict", "edict", "ml_collections")
# Base classes that do not read the fields of their subclasses.
_PLAIN_BASES = {"object", "NamedTuple", "BaseModel", "BaseSettings", "Tap", "Serializable", "ABC", "Generic"}
_LEAST_READ, _LEAST_KEYS = 0.6, 2
# Parts of all names that mean a setting of torch; where none is given, the setting's own name.
_STEMS = {
    "num_workers": ("worker",),
    "batch_size": ("batch_size", "samples_per_gpu"),
    "tf32": ("tf32",),
    "amp": ("use_amp", "amp_enabled", "enable_amp", "fp16", "bf16", "mixed_precision", "--amp", "'amp'", '"amp"'),
    "compile": (
        "compile_model",
        "use_compile",
        "torch_compile",
        "use_torch_compile",
        "--compile",
        '"compile"',
        " compile:",
    ),
}


@dataclass(frozen=True, slots=True)
class DeclaredSetting:
    """`name` is what code reads it as, `written` how the user writes it; `value` is None if it is not known."""

    name: str
    written: Message | str
    value: Any
    place: Place
    kind: Literal["option", "key", "field", "constant", "parameter"]
    # The sections around a key.
    sections: KeyPath = ()
    option: Option | None = None

    @property
    def label(self) -> Message:
        """How the user writes it."""
        return self.written if isinstance(self.written, Message) else verbatim(self.written)

    @property
    def meaning(self) -> str | None:
        return torch_setting((*self.sections, self.name), on_command_line=self.kind in ("option", "field", "parameter"))


class JobSettings:
    """The settings of one training job, and whether its files use them."""

    def __init__(
        self,
        job: TrainingJob,
        training: Training,
        values: Values,
        loaders: Sequence[Loader],
        declared: dict[int, tuple[DeclaredSetting, ...]],
    ) -> None:
        """`declared` is shared by all jobs: the settings of each file."""
        self.job = job
        self.training = training
        self.project = training.project
        self.values = values
        self.modules = job.modules
        ours = {id(module) for module in self.modules}
        self.loaders = tuple(loader for loader in loaders if id(loader.function.module) in ours)
        self._declared = declared

    def declared_as(self, *meanings: str) -> list[DeclaredSetting]:
        """Settings that mean one of these of torch."""
        stems = [stem for name in meanings for stem in _STEMS.get(name, (name,))]
        return self._find(lambda meaning: meaning.meaning in meanings, stems)

    def declared_like(self, name: re.Pattern[str], stems: Sequence[str]) -> list[DeclaredSetting]:
        """Settings with such a name; `stems` are parts of these names, in lower case."""
        return self._find(lambda setting: bool(name.search(setting.name)), stems)

    def _find(self, is_wanted: Callable[[DeclaredSetting], bool], stems: Sequence[str]) -> list[DeclaredSetting]:
        """Only files with one of the stems are parsed."""
        written = [*stems, *(stem.upper() for stem in stems)]
        found = []
        for module in self.modules:
            if not any(stem in module.text for stem in written) or not any(mark in module.text for mark in _DECLARING):
                continue
            if id(module) not in self._declared:
                self._declared[id(module)] = tuple(self._in_code(module))
            found += [setting for setting in self._declared[id(module)] if is_wanted(setting)]
        in_python = [values for module, values in self.values.configs.in_python if not self.training.takes_part(module)]
        for values in (*self.values.configs.files.values(), *in_python):
            keys = [key for key in _settings_of_file(values) if is_wanted(key)]
            found += keys if keys and self._loads(values) else []
        return found

    @cached_property
    def uses(self) -> SettingUses:
        """Uses for training: what goes to a loader for evaluation does not count."""
        return SettingUses(self.project, self.modules, [loader.call for loader in self.loaders if not loader.trains])

    @cached_property
    def _uses_of_sections(self) -> SettingUses:
        return SettingUses(self.project, self.modules, as_whole=True)

    @cached_property
    def takes_whole(self) -> bool:
        """Does code outside of the project get all settings at once?"""
        return self.uses.takes_whole()

    def is_handed_on(self, setting: DeclaredSetting) -> bool:
        """Is a section around it passed on as a whole?"""
        return any(self._uses_of_sections.is_used(section) for section in setting.sections)

    def is_dead(self, setting: DeclaredSetting) -> bool:
        """Does nothing depend on it, neither here nor possibly elsewhere?"""
        return not self.uses.is_used(setting.name) and not self.is_handed_on(setting) and not self.takes_whole

    def says(self, pattern: re.Pattern[str]) -> bool:
        """Does the code match, without comments and config files?"""
        return any(
            pattern.search(module.text) and pattern.search(_COMMENT.sub("", module.text)) for module in self.modules
        )

    # Config files.

    def _loads(self, values: ConfigValues) -> bool:
        """Does this training load a config file? If no code names it, by the keys that the code reads."""
        if not self._reads_files:
            return False
        file = PurePath(next(iter(values.values())).file).name
        if any(
            f"{quote}{file}" in module.text or f"/{file}" in module.text for module in self.modules for quote in "'\""
        ):
            return True
        # Names of torch's own arguments are in every training.
        names = {path[-1] for path in values} - TORCH_SETTINGS.keys()
        return self._reads_any_file and len(names & self._read_words) >= max(_LEAST_KEYS, _LEAST_READ * len(names))

    @cached_property
    def _reads_files(self) -> bool:
        return any(word in module.text for module in self.modules for word in _LOADS)

    @cached_property
    def _reads_any_file(self) -> bool:
        """Is the name of a config file given by the user, or composed?"""
        return any(_GIVEN.search(module.text) for module in self.modules)

    @cached_property
    def _read_words(self) -> frozenset[str]:
        """Words that may be read as an attribute or a key."""
        return frozenset().union(*(_READ.findall(module.text) for module in self.modules))

    # Code.

    def _in_code(self, module: Module) -> Iterator[DeclaredSetting]:
        for option in find_options(module):
            yield self._of_option(option)
        if ".option(" in module.text:
            for function in module.functions:
                yield from (self._of_option(option) for option in find_click_options(function))
        for cls in module.classes.values() if _CLASSES.search(module.text) else ():
            if not is_settings_class(cls) or any(base.split(".")[-1] not in _PLAIN_BASES for base in cls.bases):
                continue
            for node in cls.node.body:
                target = node.target if isinstance(node, ast.AnnAssign) else None
                if isinstance(node, ast.Assign):
                    target = node.targets[0] if isinstance(node.targets[0], ast.Name) else None
                if isinstance(target, ast.Name):
                    known = self.values.field(cls, target.id)
                    value = None if known is None else known.value
                    yield DeclaredSetting(target.id, f"{cls.name}.{target.id}", value, module.place(node), "field")
        yield from self._of_names(module.body)
        for function in module.functions if any(mark in module.text for mark in _TREES) else ():
            yield from self._of_trees(function)

    def _of_option(self, option: Option) -> DeclaredSetting:
        known = self.values.default_of(option)
        value = None if known is None else known.value
        place = option.function.module.place(option.node)
        return DeclaredSetting(option.name, option.written, value, place, "option", (), option)

    def _of_names(self, body: Function) -> Iterator[DeclaredSetting]:
        """`NUM_WORKERS = 8`, `config = {"num_workers": 8}`."""
        for name, values in body.bindings.items():
            if "." in name or len(values) != 1:
                continue
            value = values[0]
            if isinstance(value, ast.Constant):
                yield DeclaredSetting(name, name, value.value, body.module.place(value), "constant")
            elif is_settings_name(name):
                yield from _entries(value, (), body.module)

    def _of_trees(self, function: Function) -> Iterator[DeclaredSetting]:
        """`_C.DATALOADER.NUM_WORKERS = 4`."""
        for name, values in function.bindings.items():
            parts = name.split(".")
            if (
                len(parts) > 2
                and parts[0] != "self"
                and is_settings_name(parts[0])
                and isinstance(values[0], ast.Constant)
            ):
                place = function.module.place(values[0])
                yield DeclaredSetting(parts[-1], ".".join(parts[1:]), values[0].value, place, "key", tuple(parts[1:-1]))


def find_job_settings(
    jobs: Sequence[TrainingJob], training: Training, values: Values, loaders: Sequence[Loader]
) -> Iterator[JobSettings]:
    """One for each training job; jobs that share all their files are one."""
    seen: set[frozenset[int]] = set()
    declared: dict[int, tuple[DeclaredSetting, ...]] = {}
    for job in jobs:
        key = frozenset(id(module) for module in job.modules)
        if key not in seen:
            seen.add(key)
            yield JobSettings(job, training, values, loaders, declared)


def _settings_of_file(values: ConfigValues) -> Iterator[DeclaredSetting]:
    for path, value in values.items():
        if value.line is not None and not isinstance(value.value, list | dict):
            place = Place(value.file, value.line)
            yield DeclaredSetting(path[-1], ".".join(path), value.value, place, "key", path[:-1])


def _entries(node: ast.expr, sections: KeyPath, module: Module) -> Iterator[DeclaredSetting]:
    if isinstance(node, ast.Dict):
        pairs = [
            (key.value, item) for key, item in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)
        ]
    elif is_call(node, "dict", "SimpleNamespace", "EasyDict", "edict", "create"):
        pairs = [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg is not None]
        for given in node.args:
            yield from _entries(given, sections, module)
    else:
        return
    for name, item in pairs:
        if isinstance(item, ast.Constant):
            path = (*sections, str(name))
            yield DeclaredSetting(str(name), ".".join(path), item.value, module.place(item), "key", sections)
        elif not names_in(item) - {"dict"}:
            yield from _entries(item, (*sections, str(name)), module)
