"""Spike streams: packed bits on disk, event rates per time bin in memory, resized to the frame's size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deblur.errors import DeblurError

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class SpikeShape:
    """The sensor's recording of one frame: time steps × rows × columns, columns a multiple of 8."""

    steps: int
    rows: int
    columns: int

    @property
    def packed(self) -> tuple[int, int, int]:
        return self.steps, self.rows, self.columns // 8


def read_packed(path: Path, shape: SpikeShape) -> Bytes:
    """The packed bits of one frame, one bit a pixel and step."""
    try:
        packed = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise DeblurError(
            f"cannot read spikes {path}: {error.strerror}; delete its folder to make the data again"
        ) from None
    expected = int(np.prod(shape.packed))
    if packed.size != expected:
        raise DeblurError(
            f"spikes {path} have {packed.size} bytes, expected {expected}; delete its folder to make the data again"
        )
    return packed.reshape(shape.packed)


def bin_edges(steps: int, bins: int) -> NDArray[np.int64]:
    return np.linspace(0, steps, bins + 1).astype(np.int64)


def count_spikes(packed: Bytes, bins: int) -> Bytes:
    """Spikes per pixel in each time bin."""
    spikes = np.unpackbits(packed, axis=-1)
    edges = bin_edges(len(packed), bins)
    return np.add.reduceat(spikes, edges[:-1], axis=0, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Taps:
    """Linear interpolation along one axis: output i is low[i] and high[i] mixed by weight[i]."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    weight: Floats

    @classmethod
    def between(cls, source: int, target: int) -> Taps:
        """Pixel centres as in most image libraries (half-pixel offset, edges repeated)."""
        centre = (np.arange(target) + 0.5) * (source / target) - 0.5
        centre = np.clip(centre, 0, source - 1)
        low = np.floor(centre).astype(np.int64)
        return cls(low, np.minimum(low + 1, source - 1), (centre - low).astype(np.float32))


def _mix(volume: Floats, taps: Taps, axis: int, weight: Floats) -> Floats:
    mixed = np.take(volume, taps.low, axis=axis)
    mixed *= 1 - weight
    other = np.take(volume, taps.high, axis=axis)
    other *= weight
    mixed += other
    return mixed


def resize(volume: Floats, rows: Taps, columns: Taps) -> Floats:
    """Bilinear, one axis after the other."""
    wide = _mix(volume, columns, 2, columns.weight)
    return _mix(wide, rows, 1, rows.weight[:, None])


def voxelise(packed: Bytes, bins: int, height: int, width: int) -> Floats:
    """Spike rates as `bins` images of the frame's size."""
    steps, rows, _ = packed.shape
    columns = packed.shape[2] * 8
    lengths = np.diff(bin_edges(steps, bins)).astype(np.float32)
    rates = count_spikes(packed, bins).astype(np.float32) / lengths[:, None, None]
    return resize(rates, Taps.between(rows, height), Taps.between(columns, width))
