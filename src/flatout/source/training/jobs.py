"""Training jobs: where a training starts, which files take part in it, and what their text says.

What a training leaves out can only be told from all its files together: a setting may be in any of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from flatout.records.source import Place
from flatout.source.project.project import Project
from flatout.source.syntax.module import Function, Module
from flatout.source.syntax.nodes import called_name, dotted_name, has_star_arguments, is_call
from flatout.source.training.regions import Loop, Training

# Whose loop it is: the project's own, or that of a trainer whose settings are the arguments of a call.
Kind = Literal["loop", "lightning", "transformers"]

_COMMENT = re.compile(r"(^|\s)#.*")
_TESTS = re.compile(r"(^|[/\\_.])(tests?|testing|conftest)([/\\_.]|$)", re.I)
_TRAINER_ARGUMENTS = re.compile(r"TrainingArguments$|^(SFT|DPO|Reward|KTO|ORPO|GRPO)Config$")
_TRAINER = re.compile(r"Trainer$")
_OF_TRANSFORMERS = ("transformers", "trl", "sentence_transformers", "setfit")
_TRAINING = re.compile(r"train|fit|learn|main|run|epoch|update|optimi[sz]e_param|finetune", re.I)
_CONFIGS = re.compile(r"^(conf|cfg|config|setting|hparam|recipe|option|param|yaml|json|experiment)\w*$", re.I)
_MODELS = ("model", "net", "network", "self.model", "self.net")
_MAX_IMPORT_HOPS = 3
_MAX_FILES = 400


@dataclass(frozen=True, slots=True)
class TextPattern:
    """A regular expression for a line, with plain strings of which every match contains one.

    Searching for the strings first is a hundred times faster than the expression alone.
    """

    pattern: re.Pattern[str]
    parts: tuple[str, ...]

    def is_in(self, text: str) -> bool:
        """Comments do not count: what is commented out sets nothing."""
        return any(
            self.pattern.search(_COMMENT.sub("", line)) for part in self.parts for line in _lines_with(part, text)
        )


def text_pattern(pattern: str, *parts: str) -> TextPattern:
    return TextPattern(re.compile(pattern), parts)


class JobTexts:
    """Which patterns match which files of a project; remembered, as jobs share most of their files."""

    def __init__(self, configs: Mapping[str, str]) -> None:
        # Config files, each with the folder it is for.
        self._configs = [(_anchor(name), text) for name, text in configs.items()]
        self._matched: dict[tuple[TextPattern, int], bool] = {}

    def say(self, what: TextPattern, module: Module) -> bool:
        return self._matches(what, module.text)

    def configs_say(self, what: TextPattern, module: Module) -> bool:
        """Does a config file above or below the module's folder match? Not those of neighbouring folders."""
        folder = PurePath(module.shown).parent
        return any(
            (folder.is_relative_to(anchor) or anchor.is_relative_to(folder)) and self._matches(what, text)
            for anchor, text in self._configs
        )

    def _matches(self, what: TextPattern, text: str) -> bool:
        key = (what, id(text))
        if key not in self._matched:
            self._matched[key] = what.is_in(text)
        return self._matched[key]


_ON_GPU = text_pattern(
    r"\bcuda\b|\bAccelerator\(|\baccelerator\s*=\s*[\"'](gpu|cuda|auto)|\bgpus?\s*=|\bdevices\s*=",
    "cuda", "Accelerator(", "accelerator", "gpu", "devices",
)  # fmt: skip
# Launchers that take settings from a file or command line of their own, which is not in the project.
_LAUNCHED = text_pattern(
    r"\bAccelerator\(|\bdeepspeed\b|\bFabric\(|\bcolossalai\b|\bLightningCLI\(|\bxla_model\b",
    "Accelerator(", "deepspeed", "Fabric(", "colossalai", "LightningCLI(", "xla_model",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class TrainingJob:
    """A training with all its files. `node` is its loop, or the call that makes its trainer."""

    kind: Kind
    module: Module
    function: Function
    node: Loop | ast.Call
    modules: tuple[Module, ...]
    texts: JobTexts

    def says(self, what: TextPattern) -> bool:
        """Does one of its files match, or one of the config files beside it?"""
        return any(self.texts.say(what, module) for module in self.modules) or self.texts.configs_say(what, self.module)

    @property
    def is_on_gpu(self) -> bool:
        return self.kind == "transformers" or self.says(_ON_GPU)

    @property
    def is_launched(self) -> bool:
        """May a launcher or its config file set precision and compiling?"""
        return self.says(_LAUNCHED)

    @property
    def place(self) -> Place:
        if isinstance(self.node, ast.Call):
            return self.module.place(self.node)
        return loop_header(self.node, self.module)

    def is_given(self, *names: str) -> bool:
        """Does the call that makes the trainer set one of these arguments, or may it?"""
        node = self.node
        if not isinstance(node, ast.Call):
            return False
        # If only the trainer is made here, its arguments come from a command line or another file.
        is_elsewhere = self.kind == "transformers" and called_name(node).endswith("Trainer")
        return is_elsewhere or has_star_arguments(node) or any(keyword.arg in names for keyword in node.keywords)


def _anchor(name: str) -> PurePath:
    """The folder that a config file is for: `project` of `project/configs/train/base.yaml`."""
    parts = PurePath(name).parent.parts
    of_configs = next((at for at, part in enumerate(parts) if _CONFIGS.search(part)), len(parts))
    return PurePath(*parts[:of_configs])


def _lines_with(part: str, text: str) -> Iterator[str]:
    at = text.find(part)
    while at >= 0:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield text[text.rfind("\n", 0, at) + 1 : end]
        at = text.find(part, end)


def loop_header(loop: Loop, module: Module) -> Place:
    """The first line of a loop, up to its colon."""
    ends = module.place(loop.test if isinstance(loop, ast.While) else loop.iter)
    begins = module.place(loop)
    return Place(begins.file, begins.line, begins.column, ends.end_line, ends.end_column, begins.cell)


def find_jobs(training: Training) -> tuple[TrainingJob, ...]:
    """One job for each file that trains, without tests."""
    project = training.project
    begun: dict[int, tuple[Kind, Function, Loop | ast.Call]] = {}
    for region in training.regions:
        if region.call_site is None and region.loop is not None and _is_training_loop(region.loop, region.function):
            begun.setdefault(id(region.module), ("loop", region.function, region.loop))
    for kind, function, call in _find_trainers(project):
        begun.setdefault(id(function.module), (kind, function, call))
    texts = JobTexts({config: project.read(config) for config in project.configs} if begun else {})
    return tuple(
        TrainingJob(kind, function.module, function, node, _files_of(function.module, training), texts)
        for kind, function, node in begun.values()
        if not is_test_module(function.module)
    )


def is_test_module(module: Module) -> bool:
    return bool(_TESTS.search(module.shown))


def _is_training_loop(loop: Loop, function: Function) -> bool:
    """Does a loop iterate over data, or is it named for training? A mere count may be the steps of an attack."""
    if isinstance(loop, ast.For | ast.AsyncFor) and not (is_call(loop.iter, "range", "trange", "count")):
        return True
    return function.definition is None or bool(_TRAINING.search(f"{function.qualified} {function.module.shown}"))


def _find_trainers(project: Project) -> Iterator[tuple[Kind, Function, ast.Call]]:
    """Calls that make a framework's trainer, or its arguments, in files that also start it."""
    for module in project.mentioning("Trainer"):
        if ".fit(" not in module.text or "ightning" not in module.text:
            continue
        for call, function in module.calls.get("Trainer", ()):
            if module.library_of(dotted_name(call.func)) in ("lightning", "pytorch_lightning"):
                yield "lightning", function, call
    for module in project.modules:
        if ".train(" not in module.text or not any(library in module.text for library in _OF_TRANSFORMERS):
            continue
        for makes in (_TRAINER_ARGUMENTS, _TRAINER):
            for name, found in module.calls.items():
                for call, function in found if makes.search(name) else ():
                    if module.library_of(dotted_name(call.func)) in _OF_TRANSFORMERS:
                        yield "transformers", function, call


def _files_of(module: Module, training: Training) -> tuple[Module, ...]:
    """Files of the same training, and files that import it, with what those import."""
    project = training.project
    found = {id(other): other for other in project.modules if training.are_together(module, other)}
    found[id(module)] = module
    waiting = [(importer, 1) for importer in _importers(module, project)]
    while waiting and len(found) < _MAX_FILES:
        current, distance = waiting.pop()
        if id(current) in found:
            continue
        found[id(current)] = current
        if distance < _MAX_IMPORT_HOPS:
            waiting += [
                (other, distance + 1) for other in (*_imported(current, project), *_importers(current, project))
            ]
    return tuple(found.values())


def _imported(module: Module, project: Project) -> list[Module]:
    found = (project.module_named(name) for name in module.imported_names)
    return [imported for imported in found if imported is not None]


def _importers(module: Module, project: Project) -> list[Module]:
    others = project.mentioning(module.name.split(".")[-1])
    return [other for other in others if other is not module and module in _imported(other, project)]


def nearby_modules(job: TrainingJob) -> tuple[Module, ...]:
    """The file that trains, and those that it imports or that import it: a library holds more than is trained here."""
    module, ending = job.module, job.module.name.split(".")[-1]
    brought, found = set(module.imported_names), [module]
    for other in job.modules:
        is_imported = any(other.name == name or other.name.endswith(f".{name}") for name in brought)
        imports = ending in other.text and any(name.rpartition(".")[2] == ending for name in other.imported_names)
        if other is not module and (is_imported or imports):
            found.append(other)
    return tuple(found)


def find_model_call(job: TrainingJob) -> ast.expr | None:
    """The call that makes the model, or moves it to the device, in the file that trains."""
    for function in (job.function, job.module.body, *job.module.functions):
        for name in _MODELS:
            made = [call for call in function.bindings.get(name, ()) if isinstance(call, ast.Call)]
            if made:
                return made[-1]
    return None
