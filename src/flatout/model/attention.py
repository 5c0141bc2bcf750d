"""Attention written by hand, in the recorded operations of a step: a softmax between two products of its scores.

By the sizes: a product of batches makes scores of so many rows and columns, a softmax is given as many, and a product
is given its result. What lies between (scale, mask, dropout, casts) is told by the size of the scores as well, forward
and backward.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flatout.model.work import Operation, bytes_of, kind_of
from flatout.records.evidence import HandAttention
from flatout.records.report import MULTIPLYING

# Between a product and the softmax: scale, mask, bias, casts, and the product of a position's own.
_NEAR = 24
_SOFTMAX = ("aten::_softmax", "aten::_safe_softmax")
_Scores = tuple[int, int, int]  # how many matrices, their rows and columns


def find_hand_attention(operations: Sequence[Operation]) -> HandAttention | None:
    found = [scores for place in range(len(operations)) if (scores := _scores_at(operations, place)) is not None]
    if not found:
        return None
    sizes = {math.prod(scores) for scores in found}
    moved = sum(_moved_of(operation, sizes) for operation in operations)
    largest = max(found, key=math.prod)
    return HandAttention(calls=float(len(found)), rows=largest[1], columns=largest[2], bytes=moved)


def _scores_at(operations: Sequence[Operation], place: int) -> _Scores | None:
    """The scores of an attention whose softmax is here."""
    operation = operations[place]
    if operation.name not in _SOFTMAX or operation.phase != "forward" or len(operation.given[0].sizes) < 3:
        return None
    *batches, rows, columns = operation.given[0].sizes
    scores = math.prod(batches), rows, columns
    before, after = operations[max(0, place - _NEAR) : place], operations[place + 1 : place + 1 + _NEAR]
    is_made = any(_makes(other) == scores for other in before)
    is_used = any(_is_given(other) == scores for other in after)
    return scores if is_made and is_used else None


def _factors(operation: Operation) -> tuple[Sequence[int], Sequence[int]] | None:
    """The sizes of both, of a product of batches of matrices."""
    if operation.name not in ("aten::bmm", "aten::baddbmm") or len(operation.given) < 2:
        return None
    one, other = operation.given[-2].sizes, operation.given[-1].sizes
    return (one, other) if len(one) == len(other) == 3 else None


def _makes(operation: Operation) -> _Scores | None:
    factors = _factors(operation)
    return None if factors is None else (factors[0][0], factors[0][1], factors[1][2])


def _is_given(operation: Operation) -> _Scores | None:
    factors = _factors(operation)
    return None if factors is None else (factors[0][0], factors[0][1], factors[0][2])


def _moved_of(operation: Operation, sizes: set[int]) -> float:
    """Bytes of scores."""
    if operation.phase == "optimizer":
        return 0.0
    given = [each for each in operation.given if math.prod(each.sizes) in sizes]
    if kind_of(operation) not in MULTIPLYING:
        return bytes_of(operation) if given else 0.0
    factors = _factors(operation)
    if factors is None:
        return 0.0
    made = math.prod(_makes(operation) or ())
    width = operation.given[0].bytes / max(1, operation.given[0].elements)
    return float(sum(each.bytes for each in given)) + (width * made if made in sizes else 0.0)
