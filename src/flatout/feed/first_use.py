"""What a script does with a batch: only where each tensor goes straight to the device, once, can it be brought there.

A few batches are handed over as tensors of a class of ours, which share the memory and note the first function that
gets them. What comes out of any function is a plain tensor again, so nothing of ours goes on into the model.
"""

from __future__ import annotations

from typing import Any

import torch

from .leaves import Path, replaced

# Asking a tensor about itself reads none of its values.
_HARMLESS = frozenset({
    "size", "dim", "numel", "is_pinned", "__len__", "__hash__", "is_contiguous", "element_size", "ndimension", "stride",
    "nelement", "is_floating_point", "is_complex", "get_device",
})  # fmt: skip
_MOVES = frozenset({"to", "cuda"})


class FirstUse:
    """The first uses of one batch."""

    def __init__(self) -> None:
        self.seen: set[Path] = set()
        self.moves: dict[Path, torch.device] = {}
        # What keeps a tensor from being brought ahead: its way and the function.
        self.touched: dict[Path, str] = {}
        # What is used again after it was moved: brought ahead, both uses would have the same memory.
        self.again: dict[Path, str] = {}

    def watched(self, batch: Any) -> Any:
        """The batch with tensors that tell."""

        def change(path: Path, tensor: torch.Tensor) -> torch.Tensor:
            if type(tensor) is not torch.Tensor:
                self.touched[path] = type(tensor).__name__  # a class of its own may do anything
                return tensor
            self.seen.add(path)
            probe = tensor.as_subclass(Probe)
            probe.flatout_told = (self, path)
            return probe

        return replaced(batch, change)

    def note(self, path: Path, name: str, source: torch.Tensor, result: Any) -> None:
        if path in self.touched or name in _HARMLESS or (name == "__get__" and not isinstance(result, torch.Tensor)):
            return  # among them .shape, .dtype, .device
        if path in self.moves:
            self.again.setdefault(path, name)
        elif name in _MOVES and isinstance(result, torch.Tensor) and result.device != source.device:
            self.moves[path] = result.device
        else:
            self.touched[path] = name


class Probe(torch.Tensor):
    """A tensor of a batch that tells which function gets it first."""

    flatout_told: tuple[FirstUse, Path]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        probes: list[Probe] = []

        def plain(path: Path, tensor: torch.Tensor) -> torch.Tensor:
            if not isinstance(tensor, Probe):
                return tensor
            probes.append(tensor)
            return tensor.as_subclass(torch.Tensor)

        with torch._C.DisableTorchFunctionSubclass():
            result = func(*replaced(tuple(args), plain), **replaced(dict(kwargs or {}), plain))
            for probe in probes:
                told = probe.__dict__.get("flatout_told")
                if told is not None:
                    told[0].note(told[1], getattr(func, "__name__", str(func)), probe, result)
        return result
