"""Where a remedy works: the user's process, with everything it changes there on record so that it can be undone.

What a remedy calls from within a patch may raise; `guarded` catches that, undoes the remedy and says so. The training
goes on as it would have without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Literal, Protocol

from ..feed.reasons import Reasoned, error_text
from ..records.message import Message, message, to_plain

State = Literal["applied", "refused", "failed", "reverted"]


class Refused(Reasoned):
    """The remedy cannot be applied correctly here."""


def join_reasons(reasons: Sequence[Message]) -> Message:
    """At least one, with semicolons between them."""
    return reduce(lambda first, second: message("remedy.joined", first=first, second=second), reasons)


class Patching(Protocol):
    """Replaces attributes of classes and modules, and puts the very same originals back."""

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None: ...

    def restore(self) -> None: ...


class Site:
    def __init__(
        self,
        torch: Any,
        patches: Patching,
        after_import: Callable[[str, Callable[[Any], object]], None],
        changed: Callable[[Site], None],
        values: dict[str, Any],
    ) -> None:
        self.torch = torch
        # All that the profile asks for, this remedy's and the others': {id: value}.
        self.values = values
        self.state: State = "applied"
        self.why: Message | None = None
        self.live: dict[str, object] = {}
        self.step = 0
        # In a turn of the script without this remedy, within a process that has it.
        self.is_resting = False
        # It observes, compiles or times still: the steps are not yet those of a run with it.
        self.is_settling = False
        self._patches = patches
        self._after_import = after_import
        self._changed = changed
        self._undo: list[Callable[[], object]] = []
        self._each_step: list[Callable[[int], None]] = []
        self._at_leave: list[Callable[[], object]] = []

    @property
    def plain_why(self) -> object:
        """As a recording holds it."""
        return "" if self.why is None else to_plain(self.why)

    @property
    def in_force(self) -> bool:
        """False once reverted: a patch that somebody else has wrapped stays and must then only pass through."""
        return self.state == "applied" and not self.is_resting

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Set `owner.name` to `make(original)` until the remedy is reverted."""
        self._patches.replace(owner, name, make)

    def before(self, owner: Any, name: str, look: Callable[..., object]) -> None:
        """While in force, `look(…)` at the arguments of every `owner.name(…)` before it is called."""

        def make(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if self.in_force:
                    self.guarded(lambda: look(*args, **kwargs))
                return original(*args, **kwargs)

            return call

        self.replace(owner, name, make)

    def after(self, owner: Any, name: str, look: Callable[..., object]) -> None:
        """While in force, `look(result, …)` at what every `owner.name(…)` gave, and at its arguments."""

        def make(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                if self.in_force:
                    self.guarded(lambda: look(result, *args, **kwargs))
                return result

            return call

        self.replace(owner, name, make)

    def around(self, owner: Any, name: str, instead: Callable[..., Any]) -> None:
        """While in force, `instead(original, …)` is called for every `owner.name(…)`."""

        def make(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                return instead(original, *args, **kwargs) if self.in_force else original(*args, **kwargs)

            return call

        self.replace(owner, name, make)

    def undo(self, call: Callable[[], object]) -> None:
        """Something else to undo when the remedy is reverted; the last one first."""
        self._undo.append(call)

    def after_import(self, module: str, call: Callable[[Any], object]) -> None:
        """Call `call(module)` when the script has imported it; at once if it has."""
        self._after_import(module, lambda found: call(found) if self.in_force else None)

    def each_step(self, call: Callable[[int], None]) -> None:
        """Call `call(step)` after every optimizer step, for a guard or a schedule."""
        self._each_step.append(call)

    def at_leave(self, call: Callable[[], object]) -> None:
        """Call it when a trial is over: what it found out may serve the next."""
        self._at_leave.append(call)

    def leave(self) -> None:
        for call in self._at_leave if self.in_force else ():
            self.guarded(call)

    def tell(self, **live: object) -> None:
        """Where it took effect and with which live values; goes into the run's record."""
        if any(self.live.get(name) != value for name, value in live.items()):
            self.live.update(live)
            self._changed(self)

    def settle(self) -> None:
        """From the next step on, the steps are those of a run with it."""
        self.is_settling = False
        self.tell(settled_at=self.step)

    def give_up(self, why: Message) -> None:
        """A guard has seen enough: revert, and say at which step and why."""
        self._end("reverted", why)

    def refuse(self, why: Message) -> None:
        """It turns out, once the training runs, that it cannot be done right here."""
        self._end("refused", why)

    def _end(self, state: State, why: Message) -> None:
        if self.in_force:
            self.revert()
            self.state, self.why = state, why
            self._changed(self)

    def guarded(self, call: Callable[[], Any], otherwise: Callable[[], Any] = lambda: None) -> Any:
        """`call()`; if something of ours raises in it, the remedy is given up and `otherwise()` is what counts.

        Not for calls that run the user's own code: what that raises is the user's.
        """
        try:
            return call()
        except Exception as error:
            self.give_up(error_text(error))
            return otherwise()

    def revert(self) -> None:
        self._patches.restore()
        # What cannot be undone just now puts itself on the new list.
        calls, self._undo = self._undo, []
        for call in reversed(calls):
            call()
        self._each_step.clear()
        self.is_settling = False
        self.state = "reverted"

    def stepped(self, step: int) -> None:
        self.step = step
        for call in tuple(self._each_step):
            self.guarded(lambda call=call: call(step))  # type: ignore[misc]
