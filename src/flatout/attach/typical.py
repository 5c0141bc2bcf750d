"""What the steps between two that were looked at closely are taken to have been like."""

from __future__ import annotations

from .wire import BACKWARD, DATA, FORWARD, H2D, OPTIMIZER, OTHER

_PLAIN = (DATA, H2D, FORWARD, BACKWARD, OPTIMIZER, OTHER)
# Time beyond this multiple of a typical step is something else the script did, and is not shared out like a step.
_MOST = 1.5


class TypicalStep:
    """The last step that was looked at closely: its length, its phases, its batch."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._shares = [0.0] * len(_PLAIN)
        self.samples = self.copies = 0

    def learn(self, acc: list[float], then: list[float], samples: int, copies: int) -> None:
        """`acc` less `then` is what one step took, phase by phase."""
        took = [acc[phase] - then[phase] for phase in _PLAIN]
        self._seconds = sum(took)
        self._shares = [seconds / self._seconds for seconds in took] if self._seconds > 0 else self._shares
        self.samples = samples
        self.copies = copies

    def share_out(self, seconds: float, steps: int, acc: list[float]) -> None:
        """Book the time of so many steps as if each had been this one."""
        alike = min(seconds, _MOST * steps * self._seconds)
        for phase, share in zip(_PLAIN, self._shares, strict=True):
            acc[phase] += alike * share
        acc[OTHER] += seconds - alike
