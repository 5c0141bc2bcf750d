"""Watches backward passes, and now and then reads batch size and precision off the graph they run through."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from threading import get_ident
from typing import Any

from .patching import Patches
from .phases import Phases
from .tracer import BACKWARD_BEGINS, BACKWARD_ENDS, CODES, ENTER_GRAD, LEAVE, Tracer, clock

_MOST_NODES = 200
_FIRST_LOOKS = 3
_LOOK_EVERY = 1000


class GraphLook:
    """What the autograd graph shows: shapes and dtypes of intermediate results. It holds no tensor."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases
        self._looks = 0
        self.dtypes: Counter[str] = Counter()
        self.compiled = False

    def look(self, roots: Any) -> int:
        """Take a look; returns how many backwards to wait for the next one."""
        self._looks += 1
        sizes: Counter[int] = Counter()
        for node in self._nodes(roots):
            name = node.name()
            self.compiled |= name.startswith("CompiledFunction")
            if _is_of_parameters(node, name):
                continue
            for made in getattr(node, "_input_metadata", ()):
                self.dtypes[str(made.dtype).removeprefix("torch.")] += 1
                if len(made.shape) > 1:
                    sizes[int(made.shape[0])] += 1
        if sizes:
            self._phases.graph_samples = sizes.most_common(1)[0][0]
        return 1 if self._looks < _FIRST_LOOKS else _LOOK_EVERY

    def _nodes(self, roots: Any) -> list[Any]:
        tensors = roots if isinstance(roots, tuple | list) else (roots,)
        queue = deque(node for node in (getattr(t, "grad_fn", None) for t in tensors) if node is not None)
        seen: dict[Any, None] = {}
        while queue and len(seen) < _MOST_NODES:
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


class BackwardWatch:
    """Replaces torch.autograd.backward, which Tensor.backward calls too, and torch.autograd.grad."""

    def __init__(self, torch: Any, tracer: Tracer, graph: GraphLook, trouble: Callable[[Exception], None]) -> None:
        self._compiling = torch.compiler.is_dynamo_compiling
        self._tracer = tracer
        self._graph = graph
        self._trouble = trouble
        self._until_look = 1
        self._busy = False

    def install(self, module: Any, patches: Patches) -> None:
        """`module` is torch.autograd."""
        patches.replace(module, "backward", self._make_backward)
        patches.replace(module, "grad", self._make_grad)

    def _make_backward(self, original: Any) -> Any:
        tracer, compiling, trouble = self._tracer, self._compiling, self._trouble

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            # Within a backward (reentrant checkpointing) time is booked already.
            if self._busy or compiling() or (tracer.owner != get_ident() and not tracer.claim()):
                return original(tensors, *args, **kwargs)
            try:
                self._busy = True
                self._until_look -= 1
                if self._until_look <= 0:
                    self._until_look = self._graph.look(tensors)
                tracer.log(clock() * CODES + BACKWARD_BEGINS)
                if tracer.device is not None:
                    tracer.device.backward_begins()
            except Exception as error:
                trouble(error)
            try:
                return original(tensors, *args, **kwargs)
            finally:
                self._busy = False
                tracer.log(clock() * CODES + BACKWARD_ENDS)
                if tracer.device is not None:
                    _guarded(tracer.device.backward_ends, trouble)

        return backward

    def _make_grad(self, original: Any) -> Any:
        tracer, compiling = self._tracer, self._compiling

        def grad(*args: Any, **kwargs: Any) -> Any:
            if self._busy or compiling() or tracer.owner != get_ident():
                return original(*args, **kwargs)
            tracer.log(clock() * CODES + ENTER_GRAD)
            try:
                return original(*args, **kwargs)
            finally:
                tracer.log(clock() * CODES + LEAVE)

        return grad


def _guarded(call: Callable[[], object], trouble: Callable[[Exception], None]) -> None:
    try:
        call()
    except Exception as error:
        trouble(error)
