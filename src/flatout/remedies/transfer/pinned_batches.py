"""Remembers the pinned tensors that came out of a loader, and whether the script writes into them after copying them.

A tensor that a loader has pinned is of this batch only: it is copied once and then dropped, and torch keeps its memory
until a copy under way is over. A pinned buffer of the script's own may be filled again right after the copy; so those
are none of ours.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

_DEEPEST = 8
# Copies that are watched for a later write; a batch is not held back for it.
_WATCHED = 64


class PinnedBatches:
    def __init__(self, torch: Any) -> None:
        self._tensor = torch.Tensor
        # By identity: tensors compare element by element.
        self._known: dict[int, weakref.ref[Any]] = {}
        self._copied: deque[tuple[weakref.ref[Any], int]] = deque(maxlen=_WATCHED)

    def came(self, batch: Any, depth: int = 0) -> None:
        """A batch out of a loader's pinning."""
        if isinstance(batch, self._tensor):
            self._remember(batch)
        elif depth < _DEEPEST:
            for part in _parts(batch):
                self.came(part, depth + 1)

    def _remember(self, tensor: Any) -> None:
        number, known = id(tensor), self._known
        known[number] = weakref.ref(tensor, lambda _: known.pop(number, None))

    def has(self, tensor: Any) -> bool:
        found = self._known.get(id(tensor))
        return found is not None and found() is tensor

    def is_copied(self, tensor: Any) -> None:
        """It is on its way to a device."""
        self._copied.append((self._known[id(tensor)], tensor._version))

    def written_after_copy(self) -> bool:
        """Whether the script has changed a batch on the host after it was copied. Looked at once a step."""
        seen = [(reference(), version) for reference, version in self._copied]
        self._copied = deque(
            (one for one, (tensor, _) in zip(self._copied, seen, strict=True) if tensor is not None), maxlen=_WATCHED
        )
        return any(tensor is not None and tensor._version != version for tensor, version in seen)


def _parts(batch: Any) -> list[Any]:
    if isinstance(batch, dict):
        return list(batch.values())
    if isinstance(batch, list | tuple):
        return list(batch)
    # A batch of the script's own type, which pins itself.
    return list(getattr(batch, "__dict__", {}).values())
