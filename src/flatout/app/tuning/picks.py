"""Writes what a search has picked: a profile, copies of config files, and the command line to use them with."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from flatout.app.tuning.trials import Trials, write
from flatout.launch.profile import profile_toml
from flatout.records.tune import Pick
from flatout.report.tune import describe_setting

PROFILE, COMMAND = "flatout.toml", "command.txt"


def written(pick: Pick, trials: Trials, folder: Path, figures: str) -> Pick:
    """The pick with its files; the folder is the pick's own."""
    if pick.point is None:
        return pick
    remedies = trials.profile(pick.point.setting).values
    comments = [f"{pick.name}: {describe_setting(pick.point.setting)}", figures, pick.why]
    if remedies:
        write(folder / PROFILE, profile_toml(remedies, [one for one in comments if one]))
    command = command_text(trials.command_for(pick.point.setting, folder), bool(remedies), folder, trials.cwd)
    write(folder / COMMAND, command + "\n")
    return replace(pick, folder=os.path.relpath(folder, trials.cwd), command=command)


def command_text(command: Sequence[str], with_profile: bool, folder: Path, cwd: Path) -> str:
    """To be typed in the working folder."""
    if with_profile:
        return shlex.join(["flatout", "run", "--with", os.path.relpath(folder / PROFILE, cwd), *command])
    first = command[0]
    return shlex.join(["python", *command] if first.startswith("-m") or first.endswith(".py") else command)
