"""From a setting to a trial: the command, the config copies, the remedies and the length it needs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatout.experiment.request import Request
from flatout.experiment.sizing import warm_up_steps
from flatout.experiment.tuning.configs import edit_config
from flatout.experiment.tuning.knobs import remedies_for, with_files, with_flag
from flatout.launch.profile import Profile, read_profile
from flatout.records.atomic import write_atomic
from flatout.records.message import Message, message
from flatout.records.trial import Trial
from flatout.records.tune import Ask, Knob, Setting, describe_setting
from flatout.remedies.catalogue import traits_of

_COPIES = "configs"
_PREFETCH = 2
# Rounds of all workers that a trial has to see: they hand out their batches in bursts.
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class SettingTrials:
    """Makes the trial that is asked for. `base` are remedies that all of them have; goes to other machines as well."""

    make: Callable[[Request], Trial]
    command: tuple[str, ...]
    knobs: tuple[Knob, ...]
    base: Mapping[str, Any]
    folder: Path
    cwd: Path
    warm_up: int
    limit_s: float
    metric: str | None
    allow_writes: bool = False
    # Of the script's own loader, where no knob or remedy says otherwise.
    own_workers: int = 0

    def __call__(self, ask: Ask) -> Trial:
        return self.make(self.request(ask))

    def request(self, ask: Ask) -> Request:
        remedies = self.profile(ask.setting).values
        warm_up, steps = self._lengths(ask, remedies)
        return Request(
            command=self.command_for(ask.setting, self.folder / _COPIES),
            arm=describe_setting(ask.setting),
            remedies=remedies,
            steps=warm_up + steps,
            warm_up=warm_up,
            limit_s=self.limit_s,
            metric=self.metric,
            knobs=dict(ask.setting),
            repeat=ask.repeat,
            allow_writes=self.allow_writes,
        )

    def refusal(self, ask: Ask) -> Message | None:
        """Remedies of which only one can hold make no setting."""
        notices = self.profile(ask.setting).notices
        return message("tune.not_tried", why=notices[0]) if notices else None

    def profile(self, setting: Setting) -> Profile:
        turned = [knob for knob in self._turned(setting) if knob.kind == "remedy"]
        wanted = dict(self.base)
        for knob in turned:
            wanted.pop(knob.target, None)
            wanted |= remedies_for(knob, setting[knob.name])
        return read_profile(None, wanted) if wanted else Profile({})

    def command_for(self, setting: Setting, folder: Path) -> tuple[str, ...]:
        """The user's words with the setting's, its config copies written into `folder`."""
        command = self.command
        for knob in self._turned(setting):
            if knob.kind == "flag":
                command = with_flag(command, knob.target, setting[knob.name])
        return with_files(command, self.copies(setting, folder))

    def copies(self, setting: Setting, folder: Path) -> dict[str, str]:
        """{config file: its copy}, named by what is in it, so that equal ones are one file."""
        values: dict[str, dict[str, Any]] = {}
        for knob in self._turned(setting):
            if knob.kind == "config":
                values.setdefault(knob.file, {})[knob.target] = setting[knob.name]
        found = {}
        for file, changed in values.items():
            original = self.cwd / file
            text = edit_config(original, changed)
            digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
            copy = folder / f"{original.stem}-{digest}{original.suffix}"
            copy.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(copy, text)
            found[file] = os.path.relpath(copy, self.cwd)
        return found

    def _turned(self, setting: Setting) -> list[Knob]:
        return [knob for knob in self.knobs if knob.name in setting]

    def _lengths(self, ask: Ask, remedies: Mapping[str, Any]) -> tuple[int, int]:
        """What workers have ready when the first step is over says nothing of how fast they are: that is warm-up."""
        workers = self._number("num_workers", ask.setting, remedies, self.own_workers)
        prefetch = self._number("prefetch_factor", ask.setting, remedies, _PREFETCH)
        late = warm_up_steps(remedies)
        return self.warm_up + late + workers * prefetch, max(ask.steps, _ROUNDS * workers)

    def _number(self, meaning: str, setting: Setting, remedies: Mapping[str, Any], otherwise: int) -> int:
        """Of the knob that is this setting of a training, or of the remedy that is."""
        found = [setting[knob.name] for knob in self._turned(setting) if knob.meaning == meaning]
        found += [value for id, value in remedies.items() if (knob := traits_of(id).knob) and knob.setting == meaning]
        value = found[0] if found else None
        return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def digest_search(command: Sequence[str], knobs: Sequence[Knob], rest: Sequence[object], cwd: Path) -> str:
    """Equal for searches whose trials say the same: same words, knobs and machine, and files that did not change."""
    digest = hashlib.blake2b(digest_size=6)
    digest.update(repr((tuple(command), tuple(knobs), tuple(rest), os.uname().nodename)).encode())
    for word in command:
        for name in (word, word.partition("=")[2]):
            try:
                file = cwd / name
                if name and file.is_file() and file.stat().st_size < 1 << 24:
                    digest.update(file.read_bytes())
            except (OSError, ValueError):
                continue
    return digest.hexdigest()
