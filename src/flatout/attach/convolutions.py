"""In which memory layout the model's convolutions run, read off the nodes of the autograd graph."""

from __future__ import annotations

from collections import Counter
from typing import Any

_PRODUCTS = ("AddmmBackward", "MmBackward", "BmmBackward", "BaddbmmBackward", "LinearBackward", "ScaledDotProduct")
# Tensor cores take channels by eights.
_TOGETHER = 8
_MISSING = object()


class ConvolutionLook:
    """Counts of what the looked-at graphs hold. It keeps no tensor."""

    def __init__(self, torch: Any) -> None:
        self._last = torch.channels_last
        # Two-dimensional convolutions that tensor cores can take, by layout and dtype: "channels_first bfloat16".
        self.layouts: Counter[str] = Counter()
        self.seen = self.products = 0

    def look(self, node: Any, name: str) -> None:
        if name.startswith("ConvolutionBackward"):
            self.seen += 1
            try:
                self._note(node)
            except (AttributeError, RuntimeError):
                pass  # a torch that saves something else there, or a graph that was freed
        elif name.startswith(_PRODUCTS):
            self.products += 1

    def _note(self, node: Any) -> None:
        (made,) = node._input_metadata
        weight = _saved(node._raw_saved_weight)
        if len(made.shape) != 4 or node._saved_groups != 1:
            return
        dtype = str(made.dtype).removeprefix("torch.")
        if weight is None:
            self.layouts[f"unknown {dtype}"] += 1
            return
        if weight.shape[0] % _TOGETHER or weight.shape[1] % _TOGETHER:
            return
        given = _saved(node._raw_saved_input)
        # cudnn takes the layout of either: one of them in channels-last is enough.
        layouts = {self._layout(one) for one in (weight, given) if one is not None}
        if "channels_last" in layouts:
            layout = "channels_last"
        else:
            # By the weight alone it cannot be told: the images may still lie in channels-last.
            layout = "unknown" if given is None or layouts == {"either"} else "channels_first"
        self.layouts[f"{layout} {dtype}"] += 1

    def _layout(self, tensor: Any) -> str:
        last, first = tensor.is_contiguous(memory_format=self._last), tensor.is_contiguous()
        # A kernel of 1 x 1, or a single channel, is both.
        return "either" if last and first else "channels_last" if last else "channels_first"


def _saved(raw: Any) -> Any:
    """The tensor as it was saved; None where the script put hooks on it, which are not ours to call."""
    # Unpacking may bring it back from the host, or run a checkpointed forward again.
    return raw.data if getattr(raw, "unpack_hook", _MISSING) is None else None
