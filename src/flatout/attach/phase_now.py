"""The phase that is open at this moment, for one who looks in from another thread while events are still unread."""

from __future__ import annotations

from collections.abc import Sequence

from . import tracer as ev
from .phases import PENDING
from .wire import BACKWARD, CHECKPOINT, DATA, EVAL, FORWARD, GC, H2D, LOGGING, OPTIMIZER, OTHER, SYNC

_ENTERED = {
    ev.ENTER_CLOSURE: FORWARD,
    ev.ENTER_GRAD: BACKWARD,
    ev.ENTER_H2D: H2D,
    ev.ENTER_SYNC: SYNC,
    ev.ENTER_SYNC_NO_GRAD: SYNC,
    ev.ENTER_CHECKPOINT: CHECKPOINT,
    ev.ENTER_LOGGING: LOGGING,
    ev.ENTER_GC: GC,
}
_BASE = {
    ev.REQUEST: DATA,
    ev.REQUEST_NO_GRAD: EVAL,
    ev.EXHAUSTED: OTHER,
    ev.ITERATOR_MADE: OTHER,
    ev.BACKWARD_BEGINS: BACKWARD,
    ev.BACKWARD_ENDS: OTHER,
    ev.OPTIMIZER_BEGINS: OPTIMIZER,
    ev.OPTIMIZER_ENDS: PENDING,
}


def phase_now(codes: Sequence[int], resting: int) -> int:
    """The phase open after these events, for one who looks in from another thread. `resting`: if they do not say.

    PENDING is the time after an optimizer step: what it is shows only in what follows.
    """
    closed = 0
    arrived = trained = evaluating = False
    for what in reversed(codes):
        code = what & 31
        if code == ev.LEAVE:
            closed += 1
        elif code in _ENTERED:
            if not closed:
                return _ENTERED[code]
            closed -= 1
        elif code == ev.ARRIVED:
            arrived = True
        elif code == ev.TRAIN_CALLED:
            trained = True
        elif code == ev.EVAL_CALLED:
            evaluating |= not trained
        elif code in _BASE:
            phase = _BASE[code]
            if phase == PENDING and evaluating:
                return EVAL
            return FORWARD if arrived and phase == DATA else phase
    return FORWARD if arrived else resting
