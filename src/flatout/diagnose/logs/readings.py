"""One reading of a log: what a single line says about the pace."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Words by which a line says that it is not about training. A name such as `val_loss` is none of them.
_EVALUATION = re.compile(
    r"(?<![\w./-])(?:val|valid|validation|validating|eval|evaluation|evaluating|evaluate|test|testing|inference|"
    r"sanity|predicting)(?![\w./-]*[/\\.]\w)(?!\w)",
    re.IGNORECASE,
)
_TRAINING = re.compile(r"(?<![\w./-])(?:train|training)(?!\w)", re.IGNORECASE)
_CHECKPOINT = re.compile(
    r"\b(?:sav(?:e|ed|ing)\b.*\b(?:checkpoint|model|weights)|checkpoint\b.*\bsaved)", re.IGNORECASE
)
_PREPARATION = re.compile(
    r"\b(?:map|filter|flatten|tokeni[sz]\w*|download\w*|loading|fetching|generating|resolving|extracting|casting|"
    r"saving|upload\w*|caching|scanning|preprocess\w*|indexing)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """Figures of one line, None where it has none. `time_s` and `data_s` are of one step."""

    line: int
    # Which lines belong together: the format, and for a bar its text in front.
    source: str
    step: float | None = None
    # Of the epoch or the bar, where the line says "50/7330".
    total: float | None = None
    it_per_s: float | None = None
    samples_per_s: float | None = None
    time_s: float | None = None
    data_s: float | None = None
    loss: float | None = None
    batch: float | None = None
    # Seconds of the time stamp, and seconds since the bar began.
    stamp_s: float | None = None
    elapsed_s: float | None = None
    # Its place in the log: a bar that overwrites itself has many readings in one line.
    at: int = 0

    @property
    def has_rate(self) -> bool:
        return any(value is not None for value in (self.it_per_s, self.samples_per_s, self.time_s))

    @property
    def tells_pace(self) -> bool:
        """Alone, or together with its neighbours."""
        return self.has_rate or (self.step is not None and (self.stamp_s is not None or self.elapsed_s is not None))


def is_evaluation(text: str) -> bool:
    return _EVALUATION.search(text) is not None and _TRAINING.search(text) is None


def is_checkpoint(text: str) -> bool:
    return _CHECKPOINT.search(text) is not None


def is_preparation(text: str) -> bool:
    """A bar of something that comes before training: its text in front says so."""
    return _PREPARATION.search(text) is not None
