"""Finished trials, one JSON line each: a search that was killed is made again from them, without a trial.

A search is a function of what its trials came to, so reading them back in place of making them leads to the same next
question.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import IO

from flatout.errors import FlatoutError
from flatout.experiment.tuning.strategies import setting_key
from flatout.records.trial import Trial
from flatout.records.tune import Ask
from flatout.words.codec import decode, encode

FILE = "trials.jsonl"


class Journal:
    """Use as a context manager; two searches never write to one file. `limit_s` is what a trial may take now."""

    def __init__(self, folder: Path, limit_s: float = 0.0) -> None:
        self._path = folder / FILE
        self._limit_s = limit_s
        self._file: IO[bytes] | None = None
        self._known: dict[str, Trial] = {}

    def __enter__(self) -> Journal:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a+b")
        except OSError as error:
            words = f"{str(self._path.parent)!r} cannot be written: {error.strerror or error}; choose with --out"
            raise FlatoutError(words) from error
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
        """None also where it ran out of time, and may take longer now."""
        trial = self._known.get(_name(ask))
        is_open = trial is not None and trial.ending == "out of time" and trial.wall_s < self._limit_s
        return None if is_open else trial

    def add(self, ask: Ask, trial: Trial) -> None:
        assert self._file is not None
        line = {
            "setting": dict(ask.setting),
            "steps": ask.steps,
            "repeat": ask.repeat,
            "trial": encode(trial, only_finite=False),
        }
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
                self._known[_name(ask)] = decode(Trial, value["trial"], strict=False)
            except (ValueError, KeyError, TypeError):
                continue  # a line that was damaged is a trial to make again
        self._file.truncate(whole)


def _name(ask: Ask) -> str:
    return f"{setting_key(ask.setting)} {ask.steps} {ask.repeat}"
