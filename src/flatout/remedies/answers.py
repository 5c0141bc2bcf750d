"""Would a remedy help a run like this one? Yes with a value, or no, because."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..records.report import RunReport


@dataclass(frozen=True, slots=True)
class Answer:
    """`value` is what to apply, None for no; `why` is one sentence without its full stop."""

    value: Any
    why: str

    @property
    def is_yes(self) -> bool:
        return self.value is not None


def yes(value: Any, why: str) -> Answer:
    return Answer(value, why)


def no(why: str) -> Answer:
    return Answer(None, why)


def by_finding(
    report: RunReport, remedy: str, otherwise: str, evidence: str | None = None, value: Any = True
) -> Answer:
    """Yes if a finding of the run names this remedy, with the value that its evidence has under `evidence`."""
    for finding in report.findings:
        if finding.remedy == remedy:
            found = finding.evidence.get(evidence) if evidence is not None else None
            return yes(value if found is None else found, finding.cause)
    return no(otherwise)
