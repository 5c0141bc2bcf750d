"""Finished trials, one JSON line each: a search that was killed is made again from them, without a trial.

A search is a function of what its trials came to, so reading them back in place of making them leads to the same next
question.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from flatout.errors import FlatoutError
from flatout.records.report import RemedyState
from flatout.records.trial import Trial
from flatout.records.tune import Ask
from flatout.tune.space import key

FILE = "trials.jsonl"


class Journal:
    """Use as a context manager; two searches never write to one file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._file: IO[bytes] | None = None
        self._known: dict[str, Trial] = {}

    def __enter__(self) -> Journal:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise FlatoutError(f"another search is writing to {self._path}: wait for it, or change a knob") from None
        self._read()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._file is not None
        self._file.close()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, ask: Ask) -> Trial | None:
        return self._known.get(_name(ask))

    def add(self, ask: Ask, trial: Trial) -> None:
        assert self._file is not None
        line = {"setting": dict(ask.setting), "steps": ask.steps, "repeat": ask.repeat, "trial": asdict(trial)}
        self._file.write(json.dumps(line, default=str).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._known[_name(ask)] = trial

    def clear(self) -> None:
        """Begin anew."""
        assert self._file is not None
        self._file.truncate(0)
        self._known.clear()

    def _read(self) -> None:
        """Whole lines only: what a killed search was just writing is cut off."""
        assert self._file is not None
        self._file.seek(0)
        whole = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            try:
                value = json.loads(line)
                ask = Ask(value["setting"], value["steps"], value["repeat"])
                self._known[_name(ask)] = _trial(value["trial"])
            except (ValueError, KeyError, TypeError):
                continue  # a line that was damaged is a trial to make again
        self._file.truncate(whole)


def _name(ask: Ask) -> str:
    return f"{key(ask.setting)} {ask.steps} {ask.repeat}"


def _trial(value: dict[str, Any]) -> Trial:
    lists = {name: tuple(value[name]) for name in ("step_s", "samples", "losses", "written")}
    states = tuple(RemedyState(**state) for state in value["states"])
    return Trial(**{**value, **lists, "states": states})
