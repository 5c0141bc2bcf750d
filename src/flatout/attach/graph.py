"""What the autograd graph of a step shows: batch size, precision, memory layout, anomaly mode. It is read seldom."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from .batch import PaddingInspector
from .phases import Phases

_MOST_NODES = 200
_MOST_COUNTED = 2000
_FIRST_LOOKS = 3
_LOOK_EVERY = 1000


class GraphInspector:
    """What the autograd graph shows: shapes and dtypes of intermediate results. It holds no tensor."""

    def __init__(self, torch: Any, phases: Phases, padding: PaddingInspector) -> None:
        self._is_anomaly_enabled = torch.is_anomaly_enabled
        self._phases = phases
        self.padding = padding
        self.convolutions = ConvolutionLayouts(torch)
        self.looks = 0
        self.dtypes: Counter[str] = Counter()
        self.compiled = self.anomaly = False
        self.operations = 0  # of a graph made in anomaly mode

    def look(self, roots: Any) -> None:
        self.looks += 1
        # Often switched on around the passes only, and off again wherever else one might ask.
        if self._is_anomaly_enabled():
            self.anomaly = True
            # Its cost grows with their number, and counting them is cheap beside it.
            self.operations = len(self._nodes(roots, _MOST_COUNTED))
        sizes: Counter[int] = Counter()
        shapes: set[tuple[int, ...]] = set()
        for node in self._nodes(roots, _MOST_NODES):
            name = node.name()
            self.compiled |= name.startswith("CompiledFunction")
            self.convolutions.look(node, name)
            if _is_of_parameters(node, name):
                continue
            for made in getattr(node, "_input_metadata", ()):
                self.dtypes[str(made.dtype).removeprefix("torch.")] += 1
                if len(made.shape) > 1:
                    sizes[int(made.shape[0])] += 1
                    shapes.add(tuple(made.shape))
        if sizes:
            self._phases.graph_samples = sizes.most_common(1)[0][0]
        self.padding.note_graph(shapes)

    def is_due(self, index: int) -> bool:
        """Is it time for another look, after this many steps? Seldom: a big graph takes a while to walk."""
        return self.looks < _FIRST_LOOKS or index >= _LOOK_EVERY * self.looks

    def _nodes(self, roots: Any, most: int) -> list[Any]:
        tensors = roots if isinstance(roots, tuple | list) else (roots,)
        queue = deque(node for node in (getattr(t, "grad_fn", None) for t in tensors) if node is not None)
        seen: dict[Any, None] = {}
        while queue and len(seen) < most:
            node = queue.popleft()
            if node in seen:
                continue
            seen[node] = None
            queue.extend(following for following, _ in node.next_functions if following is not None)
        return list(seen)


def _is_of_parameters(node: Any, name: str) -> bool:
    """A parameter itself, or a transposed view of one: its leading dimension is not the batch's."""
    if name.endswith("AccumulateGrad"):
        return True
    following = [f for f, _ in node.next_functions]
    only_parameters = bool(following) and all(f is not None and f.name().endswith("AccumulateGrad") for f in following)
    return only_parameters and name.startswith(("TBackward", "TransposeBackward", "PermuteBackward", "ViewBackward"))


# In which memory layout the convolutions of the model run, read off the nodes of the autograd graph.

_PRODUCTS = ("AddmmBackward", "MmBackward", "BmmBackward", "BaddbmmBackward", "LinearBackward", "ScaledDotProduct")
# Tensor cores take channels by eights.
_CHANNEL_MULTIPLE = 8
_MISSING = object()


class ConvolutionLayouts:
    """Counts of what the looked-at graphs hold. It keeps no tensor."""

    def __init__(self, torch: Any) -> None:
        self._last = torch.channels_last
        # Two-dimensional convolutions that tensor cores can take, by layout and dtype: "channels_first bfloat16".
        self.layouts: Counter[str] = Counter()
        self.counts = {"convolutions": 0, "products": 0}  # of matrices

    def look(self, node: Any, name: str) -> None:
        if name.startswith("ConvolutionBackward"):
            self.counts["convolutions"] += 1
            try:
                self._note(node)
            except (AttributeError, RuntimeError):
                pass  # a torch that saves something else there, or a graph that was freed
        elif name.startswith(_PRODUCTS):
            self.counts["products"] += 1

    def _note(self, node: Any) -> None:
        (made,) = node._input_metadata
        weight = _saved_tensor(node._raw_saved_weight)
        if len(made.shape) != 4 or node._saved_groups != 1:
            return
        dtype = str(made.dtype).removeprefix("torch.")
        if weight is None:
            self.layouts[f"unknown {dtype}"] += 1
            return
        if weight.shape[0] % _CHANNEL_MULTIPLE or weight.shape[1] % _CHANNEL_MULTIPLE:
            return
        given = _saved_tensor(node._raw_saved_input)
        # cudnn takes the layout of either: one of them in channels-last is enough.
        layouts = {self._layout(tensor) for tensor in (weight, given) if tensor is not None}
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


def _saved_tensor(raw: Any) -> Any:
    """The tensor as it was saved; None where the script put hooks on it, which are not ours to call."""
    # Unpacking may bring it back from the host, or run a checkpointed forward again.
    return raw.data if getattr(raw, "unpack_hook", _MISSING) is None else None
