"""Clips as small as they can travel: cropped bytes and spike counts; floats are made on the device.

The numbers are those of `SpikeDeblurDataset`, bit for bit: the same additions and multiplications, only for the pixels
of the crop. Divisions by a constant come from a table, since CUDA would multiply by the reciprocal instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from deblur.config import Config
from deblur.dataset import ClipIndex, Crop, read_image
from deblur.generate import DataShape, frame_paths
from deblur.loader import as_tensors
from deblur.voxel import Taps, bin_edges, count_spikes, read_packed


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a spike axis that a crop needs, of fixed length so that clips stack, and its taps relative to it."""

    start: int
    stop: int
    taps: Taps

    @classmethod
    def of(cls, source: int, target: int, first: int, size: int, reverse: bool, unit: int) -> Span:
        """`unit`: the span starts and ends at multiples of it (8 for packed columns)."""
        taps = Taps.between(source, target)
        part = slice(first, first + size)
        low, high, weight = taps.low[part], taps.high[part], taps.weight[part]
        units = min(source // unit, -(-(-(-size * source // target) + 2) // unit) + 1)
        start = min(int(low[0]) // unit, source // unit - units) * unit
        if reverse:
            low, high, weight = low[::-1], high[::-1], weight[::-1]
        return cls(start, start + units * unit, Taps(low - start, high - start, weight.copy()))


class CompactClips(Dataset[dict[str, Tensor]]):
    """The clips of `SpikeDeblurDataset`, same order and same crops, without the float frames."""

    def __init__(self, root: Path, config: Config, shape: DataShape, seed: int, train: bool) -> None:
        self.root, self.shape, self.bins = root, shape, config.DATA.SPIKE_BINS
        self.clips = ClipIndex(config, shape, seed, train)

    def __len__(self) -> int:
        return len(self.clips)

    def set_epoch(self, epoch: int) -> None:
        self.clips.set_epoch(epoch)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        crop, shape = self.clips.crop(index), self.shape
        rows = Span.of(shape.spike_rows, shape.height, crop.top, crop.size, crop.flip, 1)
        columns = Span.of(shape.spike_columns, shape.width, crop.left, crop.size, crop.mirror, 8)
        frames = [self._frame(sequence, frame, crop, rows, columns) for sequence, frame in self.clips.frames(index)]
        sample = {name: torch.stack([frame[name] for frame in frames]) for name in frames[0]}
        for name, span in (("rows", rows), ("columns", columns)):
            sample[f"{name}_at"] = torch.from_numpy(np.stack([span.taps.low, span.taps.high]))
            sample[f"{name}_weight"] = torch.from_numpy(span.taps.weight)
        return sample

    def _frame(self, sequence: int, frame: int, crop: Crop, rows: Span, columns: Span) -> dict[str, Tensor]:
        blur, sharp, spike = frame_paths(self.root, sequence, frame)
        packed = read_packed(spike, self.shape.spikes)
        part = packed[:, rows.start : rows.stop, columns.start // 8 : columns.stop // 8]
        return {
            "blur": crop.cut(torch.from_numpy(read_image(blur, self.shape)).permute(2, 0, 1)),
            "sharp": crop.cut(torch.from_numpy(read_image(sharp, self.shape)).permute(2, 0, 1)),
            "counts": torch.from_numpy(count_spikes(part, self.bins)),
        }


class Assembler:
    """Makes the float batch of the original out of a compact one, on the device."""

    def __init__(self, config: Config, shape: DataShape, device: torch.device) -> None:
        self.device = device
        levels = np.arange(256, dtype=np.uint8).astype(np.float32) / 255.0
        self.levels = torch.from_numpy(levels).to(device)
        lengths = np.diff(bin_edges(shape.spike_steps, config.DATA.SPIKE_BINS)).astype(np.float32)
        self.lengths = torch.from_numpy(lengths).to(device)[:, None, None]

    def __call__(self, arrived: dict[str, Any]) -> dict[str, Tensor]:
        batch = {name: part.to(self.device, non_blocking=True) for name, part in as_tensors(arrived).items()}
        rates = batch["counts"].float() / self.lengths
        return {
            "blur": self.levels[batch["blur"].int()],
            "sharp": self.levels[batch["sharp"].int()],
            "spike": torch.stack([self._resize(rates[i], batch, i) for i in range(len(rates))]),
        }

    def _resize(self, rates: Tensor, batch: dict[str, Tensor], clip: int) -> Tensor:
        wide = _mix(rates, 3, batch["columns_at"][clip], batch["columns_weight"][clip])
        return _mix(wide, 2, batch["rows_at"][clip], batch["rows_weight"][clip][:, None])


def _mix(volume: Tensor, axis: int, at: Tensor, weight: Tensor) -> Tensor:
    # No lerp and no addcmul: they round once where the original rounds twice.
    low = volume.index_select(axis, at[0]).mul_(1 - weight)
    return low.add_(volume.index_select(axis, at[1]).mul_(weight))
