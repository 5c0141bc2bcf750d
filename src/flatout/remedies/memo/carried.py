"""Results that one trial of a search has kept, for the next: it need not go through an epoch to have them again.

They are found by the same rules as any other: equal bit by bit in all that they hang on, and compared at first.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from .content import bits

VARIABLE = "FLATOUT_CARRIED"
# More would take longer to write than it saves.
_MOST_BYTES = 2 << 30

Kept = tuple[Any, tuple[Any, ...], float]


class Carried:
    """The file of one function in the folder that trials share; without a folder there is nothing to carry."""

    def __init__(self, torch: Any, folder: str | None, name: str) -> None:
        self._torch = torch
        own = f"{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}.kept"
        self._file = os.path.join(folder, own) if folder else None

    def load(self) -> dict[Hashable, Kept]:
        """By key: result, large arguments, and what it took to compute."""
        if self._file is None or not os.path.exists(self._file):
            return {}
        try:
            with open(self._file, "rb") as file:
                packed = pickle.load(file)
            return {
                key: (self._all(result, self._unpacked), tuple(map(self._unpacked, large)), took_s)
                for key, (result, large, took_s) in packed.items()
            }
        except Exception:
            return {}  # then they are computed, as ever

    def save(self, kept: Mapping[Hashable, Kept], total_bytes: int) -> bool:
        """Whether the next trial will find them. Those of the first that has any are enough."""
        if self._file is None or not kept or total_bytes > _MOST_BYTES:
            return False
        try:
            if not os.path.exists(self._file):
                self._write(self._file, kept)
            return True
        except Exception:
            return False  # a class that cannot be pickled, a disk that is full: the next one computes them

    def _write(self, file: str, kept: Mapping[Hashable, Kept]) -> None:
        packed = {
            key: (self._all(result, self._packed), tuple(map(self._packed, large)), took_s)
            for key, (result, large, took_s) in kept.items()
        }
        os.makedirs(os.path.dirname(file), exist_ok=True)
        partial = f"{file}.{os.getpid()}"
        with open(partial, "wb") as opened:
            pickle.dump(packed, opened, pickle.HIGHEST_PROTOCOL)
        os.replace(partial, file)

    def _all(self, value: Any, change: Callable[[Any], Any]) -> Any:
        """With every tensor in it changed; what may be in it is what can be kept."""
        if isinstance(value, self._torch.Tensor | _Packed):
            return change(value)
        if isinstance(value, dict):
            return {name: self._all(one, change) for name, one in value.items()}
        if isinstance(value, list):
            return [self._all(one, change) for one in value]
        if isinstance(value, tuple) and type(value) is not self._torch.Size:
            make: Any = getattr(type(value), "_make", tuple)
            return make(self._all(one, change) for one in value)
        return value

    def _packed(self, tensor: Any) -> _Packed:
        data = bits(self._torch, tensor).cpu().numpy().tobytes()
        return _Packed(tensor.dtype, tuple(tensor.shape), tensor.stride(), str(tensor.device), data)

    def _unpacked(self, packed: _Packed) -> Any:
        torch = self._torch
        made = torch.empty_strided(packed.shape, packed.stride, dtype=packed.dtype, device=packed.device)
        if packed.data:
            flat = torch.frombuffer(bytearray(packed.data), dtype=torch.uint8)
            made.copy_(flat.view(packed.dtype).reshape(packed.shape))
        return made


class _Packed:
    """A tensor as plain bytes: how torch writes one is watched, and is the script's."""

    __slots__ = ("data", "device", "dtype", "shape", "stride")

    def __init__(self, dtype: Any, shape: Any, stride: Any, device: str, data: bytes) -> None:
        self.dtype, self.shape, self.stride, self.device, self.data = dtype, shape, stride, device, data
