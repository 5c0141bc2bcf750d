"""Watches backward passes, and now and then reads batch size and precision off the graph they run through."""

from __future__ import annotations

import inspect
from collections import Counter, deque
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

from .convolutions import ConvolutionLook
from .padding import PaddingLook
from .patching import Patches, guarded
from .phases import Phases
from .tracer import BACKWARD_BEGINS, BACKWARD_ENDS, ENTER_GRAD, LEAVE, Tracer, clock

# Of torch.autograd.backward; another signature means a torch we do not know, and it is left alone.
_PARAMETERS = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
_MOST_NODES = 200
_MOST_COUNTED = 2000
_FIRST_LOOKS = 3
_LOOK_EVERY = 1000


class GraphLook:
    """What the autograd graph shows: shapes and dtypes of intermediate results. It holds no tensor."""

    def __init__(self, torch: Any, phases: Phases, padding: PaddingLook) -> None:
        self._is_anomaly_enabled = torch.is_anomaly_enabled
        self._phases = phases
        self._padding = padding
        self.convolutions = ConvolutionLook(torch)
        self.looks = 0
        self.dtypes: Counter[str] = Counter()
        self.compiled = self.anomaly = False
        self.operations = 0  # of a graph made in anomaly mode

    def look(self, roots: Any) -> None:
        self.looks += 1
        # Often switched on around the passes only, and off again wherever else one might ask.
        if self._is_anomaly_enabled():
            self.anomaly = True
            # What it costs goes by their number, and is far more than counting them.
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
        self._padding.graph_seen(shapes)

    def due(self, index: int) -> bool:
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


class Passes(Protocol):
    """Who wants to know where a backward pass begins and ends: the device's clock, or the stages with it."""

    def backward_begins(self) -> None: ...
    def backward_ends(self) -> None: ...


class BackwardWatch:
    """Replaces torch.autograd.backward, which Tensor.backward calls too, and torch.autograd.grad."""

    def __init__(
        self,
        torch: Any,
        tracer: Tracer,
        device: Passes | None,
        graph: GraphLook,
        trouble: Callable[[Exception], None],
    ) -> None:
        self._compiling = torch.compiler.is_dynamo_compiling
        self._tracer = tracer
        self._device = device
        self._graph = graph
        self._trouble = trouble

    def install(self, module: Any, patches: Patches) -> None:
        """`module` is torch.autograd."""
        if tuple(inspect.signature(module.backward).parameters) == _PARAMETERS:
            patches.replace(module, "backward", self._make_backward)
        patches.replace(module, "grad", self._make_grad)

    def _make_backward(self, original: Any) -> Any:
        tracer, device, trouble = self._tracer, self._device, self._trouble
        log, at = tracer.log, tracer.at

        # The parameters spelt out: packing and unpacking them would cost more than the rest of this.
        def backward(
            tensors: Any,
            grad_tensors: Any = None,
            retain_graph: Any = None,
            create_graph: bool = False,
            grad_variables: Any = None,
            inputs: Any = None,
        ) -> Any:
            me = get_ident()
            if tracer.looking != me and (tracer.owner == me or not tracer.claim_training()):
                return original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
            try:
                if tracer.want_look:
                    tracer.want_look = False
                    self._graph.look(tensors)
                log(BACKWARD_BEGINS)
                at(clock())
                if device is not None:
                    device.backward_begins()
            except Exception as error:
                trouble(error)
            try:
                return original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
            finally:
                log(BACKWARD_ENDS)
                at(clock())
                if device is not None:
                    guarded(device.backward_ends, trouble)

        return backward

    def _make_grad(self, original: Any) -> Any:
        tracer, compiling, log, at = self._tracer, self._compiling, self._tracer.log, self._tracer.at

        def grad(*args: Any, **kwargs: Any) -> Any:
            if compiling() or tracer.owner != get_ident():
                return original(*args, **kwargs)
            log(ENTER_GRAD)
            at(clock())
            try:
                return original(*args, **kwargs)
            finally:
                log(LEAVE)
                at(clock())

        return grad
