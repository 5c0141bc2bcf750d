"""What is said of a problem in Chinese."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Words:
    """Sentences that hold for every run that has the problem; a run's own figures are in its finding.

    What stands between backticks is code.
    """

    title: str
    what_it_is: str
    what_to_do: str
