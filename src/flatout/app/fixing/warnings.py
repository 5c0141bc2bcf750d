"""What a user should know of a profile that was kept, though the figures do not say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flatout.records.report import Finding
from flatout.records.trial import Trial

_FAILED = "a trial of all that is kept, and of more in turns with it, ended so: {ending}. A longer training may, too"
_SHORT = "in a trial under the profile {what}"
_FILLS = (
    "the dataset keeps what it has loaded ({code}): where that is used again the script becomes faster by itself, and a"
    " long training gains less than these trials"
)
# A dataset that keeps things in every worker, and what of a profile is about loading.
_KEEPS, _LOADING = "ME706", "loader."
# Of what a remedy tells while it runs.
_MEMORY = "memory"
# Too little time, or a loss that another remedy beside it has spoilt, says nothing of a profile.
_FAULTS = ("crashed", "hung", "out of memory")


def warnings(trials: Sequence[Trial], profile: Mapping[str, Any], findings: Sequence[Finding] = ()) -> tuple[str, ...]:
    """Each once, in the order in which they came up."""
    keeps = any(one.code == _KEEPS for one in findings) and any(name.startswith(_LOADING) for name in profile)
    return (*dict.fromkeys(_warnings(trials, profile)), *([_FILLS.format(code=_KEEPS)] if keeps else ()))


def _warnings(trials: Sequence[Trial], profile: Mapping[str, Any]) -> Iterator[str]:
    for trial in trials:
        if not profile or trial.remedies != profile:
            continue
        if trial.ending in _FAULTS:
            yield _FAILED.format(ending=trial.ending)
        for state in trial.states:
            if _MEMORY in state.live:
                yield _SHORT.format(what=state.live[_MEMORY])
