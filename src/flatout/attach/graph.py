"""What the autograd graph of a step shows: batch size, precision, memory layout, anomaly mode. It is read seldom."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from .batch import PaddingInspector
from .phases import Phases

_MOST_NODES = 200
_MOST_COUNTED = 2000
_FIRST_LOOKS = 3
_LOOK_EVERY = 1000
# Operations that are timed in anomaly mode.
_TIMED = 5


class GraphInspector:
    """What the autograd graph shows: shapes and dtypes of intermediate results. It holds no tensor."""

    def __init__(self, torch: Any, phases: Phases, padding: PaddingInspector) -> None:
        self._is_anomaly_enabled, self._zeros = torch.is_anomaly_enabled, torch.zeros
        self._phases = phases
        self.padding = padding
        self.convolutions = ConvolutionLayouts(torch)
        self.looks = 0
        self.dtypes: Counter[str] = Counter()  # of results
        self.elements: Counter[str] = Counter()  # of all results, by dtype
        self.wide = WideWork(torch)
        self._float64 = torch.float64
        self.compiled = self.anomaly = False
        # Of a graph made in anomaly mode: how many, and the milliseconds that noting where each was made took.
        self.operations = 0
        self.anomaly_ms: float | None = None

    def look(self, roots: Any) -> None:
        self.looks += 1
        # Often switched on around the passes only, and off again wherever else one might ask.
        if self._is_anomaly_enabled():
            self.anomaly = True
            # Its cost grows with their number, and counting them is cheap beside it.
            nodes = self._nodes(roots, _MOST_COUNTED)
            self.operations = len(nodes)
            self.anomaly_ms = self._time_anomaly(nodes)
        sizes: Counter[int] = Counter()
        shapes: set[tuple[int, ...]] = set()
        for node in self._nodes(roots, _MOST_NODES):
            name = node.name()
            self.compiled |= name.startswith("CompiledFunction")
            self.convolutions.look(node, name)
            if _is_of_parameters(node, name):
                continue
            for made in getattr(node, "_input_metadata", ()):
                dtype = str(made.dtype).removeprefix("torch.")
                self.dtypes[dtype] += 1
                self.elements[dtype] += math.prod(made.shape)
                if made.dtype is self._float64:
                    self.wide.look(node, name, made)
                if len(made.shape) > 1:
                    sizes[int(made.shape[0])] += 1
                    shapes.add(tuple(made.shape))
        if sizes:
            self._phases.graph_samples = sizes.most_common(1)[0][0]
        self.padding.note_graph(shapes)

    def _time_anomaly(self, nodes: list[Any]) -> float | None:
        """What noting the stack of each node takes: as long for a frame as for one of an operation made here."""
        value = self._zeros(1, requires_grad=True, device="cpu")
        took = []
        for _ in range(_TIMED):
            begun = perf_counter()
            made = value.neg()
            took.append(perf_counter() - begun)
        frames = _frames(made.grad_fn)
        if not frames:
            return None
        return 1e3 * sorted(took)[_TIMED // 2] * sum(map(_frames, nodes)) / frames

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


def _frames(node: Any) -> int:
    """Of the stack that anomaly mode has kept of a node."""
    return len(getattr(node, "metadata", {}).get("traceback_", ()))


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
        if is_convolution(name):
            self.counts["convolutions"] += 1
            try:
                self._note(node)
            except (AttributeError, RuntimeError):
                pass  # a torch that saves something else there, or a graph that was freed
        elif name.startswith(_PRODUCTS):
            self.counts["products"] += 1

    def _note(self, node: Any) -> None:
        (made,) = node._input_metadata
        weight = saved_tensor(node._raw_saved_weight)
        if len(made.shape) != 4 or node._saved_groups != 1:
            return
        dtype = str(made.dtype).removeprefix("torch.")
        if weight is None:
            self.layouts[f"unknown {dtype}"] += 1
            return
        if weight.shape[0] % _CHANNEL_MULTIPLE or weight.shape[1] % _CHANNEL_MULTIPLE:
            return
        given = saved_tensor(node._raw_saved_input)
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


def is_convolution(name: str) -> bool:
    """Of an autograd node. Those of gradients of gradients ("ConvolutionBackwardBackward0") have several results."""
    return name.startswith("ConvolutionBackward") and not name.startswith("ConvolutionBackwardBackward")


def saved_tensor(raw: Any) -> Any:
    """The tensor as a node has saved it; None where it has none, or the script's hooks, which are not ours to call."""
    # Unpacking may bring it back from the host, or run a checkpointed forward again.
    return raw.data if getattr(raw, "unpack_hook", _MISSING) is None else None


# Work in float64: its largest product, read off the autograd graph, and what float32 would make of it here.
#
# How much float32 gains depends on the processor, on torch's kernels for it and on the sizes: small operations are
# mostly calls. So the same product and a sum of the same size are timed in both types, once, when the process ends.


# What one product may take at most; of a larger one, a part of the rows is timed. A processor does this within some
# milliseconds, and calls count for nothing beside it.
_MOST_OPERATIONS = 1e8
_MOST_ELEMENTS = 1 << 24
_ROUNDS = 4

_Size = tuple[int, int, int]  # rows, inner, columns of a matrix product


class WideWork:
    """Of the graphs that were looked at. It keeps sizes only, no tensor."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._product: _Size | None = None
        self._result = 0  # elements of the largest result on the host

    def look(self, node: Any, name: str, made: Any) -> None:
        """At a node whose result is in float64."""
        if getattr(made, "device", None) is not None and made.device.type != "cpu":
            return
        self._result = max(self._result, math.prod(made.shape))
        size = _size_of(node, name, made.shape)
        if size is not None and (self._product is None or math.prod(size) > math.prod(self._product)):
            self._product = size

    def time(self) -> dict[str, float] | None:
        """How many times longer float64 takes than float32, for the product and for a sum; None without any."""
        if not self._result:
            return None
        torch = self._torch
        with torch.no_grad():
            told = {"elementwise": self._ratio(lambda dtype: _sum(torch, min(self._result, _MOST_ELEMENTS), dtype))}
            if self._product is not None:
                rows, inner, columns = self._product
                rows = max(1, min(rows, int(_MOST_OPERATIONS / (2 * inner * columns))))
                if rows * inner + inner * columns + rows * columns <= _MOST_ELEMENTS:
                    told["product"] = self._ratio(lambda dtype: _product(torch, (rows, inner, columns), dtype))
        return {name: round(ratio, 3) for name, ratio in told.items()}

    def _ratio(self, make: Callable[[Any], Callable[[], object]]) -> float:
        wide, narrow = make(self._torch.float64), make(self._torch.float32)
        took: tuple[list[float], list[float]] = ([], [])
        for _ in range(_ROUNDS):
            for seconds, call in zip(took, (wide, narrow), strict=True):
                begun = perf_counter()
                call()
                seconds.append(perf_counter() - begun)
        # The quickest: the others were disturbed, or the first.
        return min(took[0]) / max(1e-9, min(took[1]))


def _size_of(node: Any, name: str, made: Sequence[int]) -> _Size | None:
    """Of a matrix product, or of a convolution as the product that it comes to."""
    try:
        if name.startswith(("AddmmBackward", "MmBackward")):
            inner = (node._saved_mat1_sym_sizes if name.startswith("Addmm") else node._saved_self_sym_sizes)[1]
            return int(made[0]), int(inner), int(made[1])
        if name.startswith(("BmmBackward", "BaddbmmBackward")):
            other = saved_tensor(node._raw_saved_mat2 if name.startswith("Bmm") else node._raw_saved_batch2)
            if other is not None:
                return int(made[1]), int(other.shape[1]), int(made[2])
        if is_convolution(name):
            weight = saved_tensor(node._raw_saved_weight)
            if weight is not None:
                return int(made[0]) * math.prod(made[2:]), math.prod(weight.shape[1:]), int(made[1])
    except (AttributeError, RuntimeError, IndexError):
        pass  # a torch that saves something else there, or a graph that was freed
    return None


def _product(torch: Any, size: _Size, dtype: Any) -> Callable[[], object]:
    """With both of its products in backward."""
    rows, inner, columns = size
    given, weight, bias, made = (
        torch.ones(shape, dtype=dtype, device="cpu")
        for shape in ((rows, inner), (columns, inner), (columns,), (rows, columns))
    )

    def call() -> None:
        torch.addmm(bias, given, weight.t())
        torch.mm(made, weight)
        torch.mm(made.t(), given)

    return call


def _sum(torch: Any, elements: int, dtype: Any) -> Callable[[], object]:
    values = torch.ones(elements, dtype=dtype, device="cpu")
    return lambda: torch.add(values, values)
