"""The nodes of a backward pass, as a window walks over them."""

from __future__ import annotations

from typing import Any

import torch

_LAST_NUMBER = 1 << 63  # from here on they add to the gradient of a weight


def nodes_of(made: torch.Tensor) -> list[tuple[int, Any]]:
    """With their numbers, the last made first."""
    nodes: list[tuple[int, Any]] = []
    waiting: list[Any] = [made.grad_fn]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if node._sequence_nr() < _LAST_NUMBER:
            nodes.append((node._sequence_nr(), node))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return sorted(nodes, key=lambda numbered: numbered[0], reverse=True)
