"""One sampled step: what each line of the user's code takes in forward, and in backward what its operations take.

Backward runs nodes from the highest number to the lowest: a hook in front of the first node of each line, which only
reads the clock, tells what the nodes of that line take.

Nothing here changes what torch computes. No tensor is kept, and nodes are let go of before backward runs.
"""

from __future__ import annotations

import functools
import math
import sys
import time
import weakref
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Any

from ..collection import no_collection
from ..graph import saved_tensor
from ..tracer import Tracer, clock
from .kernels import Kernel, Moment, find_launchers
from .link_calls import NOWHERE, Call, Key, ModuleCalls
from .link_drops import Drops
from .link_flow import GradientFlow
from .link_forms import OtherForms
from .link_forward import LONG_S, NODE_EVENTS, TOO_DEAR, ForwardLines, LostTime
from .link_growing import Series
from .link_pairs import PairSums
from .link_picks import PickedParts, Picks
from .link_products import Operation, Operations

_LAST_NUMBER = 1 << 63  # parameters have a higher one: they are no operation of a line
_NODES_BETWEEN_CHECKS = 64
# Linking the nodes with all accounts takes so many times what the walk to them does. Measured with 361 and 6,945 nodes:
# 4.8 and 4.0.
_ACCOUNTS = 5.0
_LOOKING = 0.3  # of what a sample may still cost, for what the heaviest operations read
# What the first reading on a device is taken to cost: the device is waited for, and loads kernels that it had no use
# for so far. Measured on an H200: 43 ms.
_DEVICE_READ_S = 0.04


@dataclass(slots=True)
class LineTotals:
    """Of one line, over the step."""

    calls: int = 0
    ops: int = 0
    forward_s: float = 0.0
    backward_s: float = 0.0
    # What the device does for it, where kernels were recorded.
    forward_device_s: float = 0.0
    backward_device_s: float = 0.0


class LinkSample:
    """One step of the training thread. `calls` takes the account of module calls, `drops` that of gradients.

    `limit_s` is what it may cost; `event_s` a measure of this machine.
    """

    def __init__(  # noqa: PLR0913
        self,
        torch: Any,
        tracer: Tracer,
        index: int,
        limit_s: float,
        event_s: float,
        calls: ModuleCalls,
        drops: Drops,
    ) -> None:
        self.index = index
        self.lines: defaultdict[Key, LineTotals] = defaultdict(LineTotals)
        self.why_not = ""  # set: this sample is of no use
        self.has_failed = self.is_of_lines = False
        self.backwards = 0
        self._lost = LostTime()
        self.forward = ForwardLines(torch, tracer, self._lost, self._give_up, limit_s, event_s, calls)
        self.backward = BackwardNodes(torch, self._lost, self._give_up, event_s, drops)

    def begin(self, with_kernels: bool = False, lines_only: bool = False) -> None:
        """`lines_only`: leave out what costs more than the lines do, the calls of modules and what nodes do."""
        self.is_of_lines = lines_only
        if lines_only:
            self.forward.leave_out_calls()
            self.backward.leave_out_accounts()
        if with_kernels:
            self.forward.track = self.backward.track = []
            # The device is waited for at the end of this step anyway.
            self.backward.operations.may_wait = True
        self.forward.resume()

    def end(self) -> None:
        self.forward.end()
        self.forward.holders.forget_variables()
        self.backward.unhook()
        self._lost.close()

    @property
    def cost_s(self) -> float:
        return self.forward.cost_s + self.backward.cost_s

    @property
    def lines_cost_s(self) -> float:
        """What the lines alone would have cost."""
        return self.cost_s - self.forward.extra_s - self.backward.accounts_s

    @property
    def without(self) -> list[str]:
        """What was left out."""
        of_calls = [] if self.forward.has_calls else ["calls"]
        return of_calls if self.backward.has_accounts else [*of_calls, "nodes"]

    @property
    def forward_s(self) -> float:
        return sum(line.forward_s for line in self.lines.values())

    @property
    def backward_s(self) -> float:
        return sum(line.backward_s for line in self.lines.values())

    @property
    def was_too_dear(self) -> bool:
        return self.why_not == TOO_DEAR

    def _give_up(self, why: str | Exception) -> None:
        """Called from within trace functions and hooks too, so nothing may leave it. An error is one of ours."""
        if isinstance(why, Exception):
            self.has_failed = True
            why = f"failed: {type(why).__name__}: {why}"
        self.why_not = self.why_not or why
        try:
            self.forward.end()
        except Exception:
            pass

    # Called by the patches of the loader, of backward and of optimizers. What fails here ends the sample.

    def arrived(self) -> None:
        self._guarded(self.forward.resume)

    def step_goes_on(self) -> None:
        """Another optimizer of the same step has ended, and all events were read."""
        self.backward.passes.forget()
        self._guarded(self.forward.forget_pending)

    def backward_begins(self, tensors: Any, create_graph: bool, is_partial: bool = False) -> None:
        self._guarded(lambda: self._enter_backward(tensors, create_graph, is_partial))

    def backward_ends(self) -> None:
        self._guarded(self._leave_backward)

    def optimizer_begins(self, optimizer: Any) -> None:
        self._note("optimizer")
        self.forward.functions.forget_known()
        self._guarded(lambda: self.backward.optimizer_begins(optimizer))

    def optimizer_ends(self) -> None:
        self._guarded(self.backward.drops.optimizer_ends)
        self._note("")

    def _note(self, phase: str) -> None:
        if self.forward.track is not None:
            self.forward.track.append((clock(), phase, None))

    def take_kernels(self, kernels: Sequence[Kernel]) -> list[tuple[str, Key]]:
        """What the device did for each line and needless call; the phase and the line that launched each kernel."""
        track = self.forward.track or []
        launchers = find_launchers(kernels, track)
        launched = [kernel.launched_s for kernel in kernels]
        for call in self.forward.calls.found:
            call.forward_device_s = sum(
                kernel.seconds
                for begun, ended in zip(call.moments[::2], call.moments[1::2], strict=False)
                for kernel in kernels[bisect_left(launched, begun) : bisect_right(launched, ended)]
            )
        places: list[tuple[str, Key]] = []
        for kernel, (phase, what) in zip(kernels, launchers, strict=True):
            key = NOWHERE
            if phase == "forward":
                key = what
                self.lines[key].forward_device_s += kernel.seconds
            elif phase == "backward":
                key = what[0]
                self.lines[key].backward_device_s += kernel.seconds
                for part in what[1:]:
                    if isinstance(part, Call):
                        part.backward_device_s = (part.backward_device_s or 0.0) + kernel.seconds
            places.append((phase, key))
        return places

    def _guarded(self, call: Callable[[], None]) -> None:
        if self.why_not:
            return
        try:
            call()
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        self._give_up(error)
        try:
            self.backward.unhook()
        except Exception:
            pass

    def _enter_backward(self, tensors: Any, create_graph: bool, is_partial: bool) -> None:
        if self.backward.is_open:
            self._give_up("reentrant")  # a backward within another: checkpointing of the old kind
        elif create_graph:
            self._give_up("double_backward")
        else:
            for key, (seconds, calls) in self.forward.pause().items():
                line = self.lines[key]
                line.forward_s += seconds
                line.calls += int(calls)
            for key, seconds in self.forward.take_grads().items():
                self.lines[key].backward_s += seconds
            if not self.why_not:
                self.backward.begin_pass(is_partial)
                self.backward.hook(tensors, self.forward, self.lines)

    def _leave_backward(self) -> None:
        if self.backward.is_open:
            self.backward.finish(self.lines)
            self.backwards += 1
            self.forward.resume()


# The line that made a node, the needless call of a module within which it did, whether it has run before, the weight
# that it picks rows from, what it is part of if its gradients may turn out to be dropped, the calls with growing inputs
# that it is of, and the tensor that it picks a part of.
_Whose = tuple[Key, Call | None, bool, "Table | None", Call | None, Series | None, Picks | None]


class BackwardNodes:
    """Hooks in front of autograd nodes, for one backward pass at a time. On a GPU they run in autograd's own thread."""

    def __init__(
        self, torch: Any, lost: LostTime, give_up: Callable[[str | Exception], None], event_s: float, drops: Drops
    ) -> None:
        self._lost = lost
        self._without_overrides = torch._C.DisableTorchFunction
        self.operations = Operations(torch)
        self._may_read_s = 0.0  # of their gradients, in this pass
        self._give_up = give_up
        self._node_s = NODE_EVENTS * event_s
        self._own_s = 0.0
        self.has_accounts = True  # of what nodes do, and not of their lines alone
        self.accounts_s = 0.0  # what these take
        self._hooked = 0
        self.nodes = 0
        self.is_open = False
        self._handles: list[Any] = []
        self._begun = 0.0
        # By thread: whose nodes run now, and since when.
        self._running: dict[int, tuple[_Whose, float]] = {}
        # Where the launches of kernels are recorded: whose nodes ran from when on.
        self.track: list[Moment] | None = None
        self._seconds: dict[_Whose, float] = {}
        self.passes = BackwardPasses()
        self.tables = Tables()
        self.picks = PickedParts()
        self.pair_sums = PairSums(torch)
        self.forms = OtherForms(torch)
        self.flow = GradientFlow(torch)
        self.drops = drops
        # Of the pass that is under way: the line that called it, its nodes, and some of the weights it reaches.
        self._called_at = NOWHERE
        self._numbers: list[int] = []
        self._leaves: list[Any] = []

    @property
    def cost_s(self) -> float:
        return self._own_s + self._hooked * self._node_s

    def begin_pass(self, is_partial: bool) -> None:
        begun = clock()
        self.passes.begin(is_partial)
        self.drops.begin_pass(is_partial)
        self._own_s += clock() - begun

    def optimizer_begins(self, optimizer: Any) -> None:
        begun = clock()
        trace = sys.gettrace()
        sys.settrace(None)  # else it is told of every call of ours
        try:
            self.drops.optimizer_begins(optimizer)
        finally:
            sys.settrace(trace)
        self._own_s += clock() - begun

    def hook(self, tensors: Any, made: ForwardLines, lines: Mapping[Key, LineTotals]) -> None:
        with no_collection:
            self._hook(tensors, made, lines)

    def _hook(self, tensors: Any, made: ForwardLines, lines: Mapping[Key, LineTotals]) -> None:
        begun = clock()
        self._lost.take()
        allowed_s = made.limit_s - made.cost_s - self.cost_s
        walk_begun = time.thread_time()
        nodes = self._walk(tensors, walk_begun + allowed_s)
        if _ACCOUNTS * (time.thread_time() - walk_begun) > allowed_s:
            self.leave_out_accounts()
        # Autograd runs them in this order.
        nodes.sort(key=lambda numbered: numbered[0], reverse=True)
        before: _Whose | None = None
        tables, picks, alone = self._find_accounts(nodes, made)
        self.flow.look(nodes, made.calls)
        growing = made.calls.growing
        growing.settle()
        has_calls, has_series = made.calls.has_ranges, growing.has_ranges
        # Every thread numbers its own nodes: those of another may have the numbers of ours.
        self._numbers = []
        calls: set[Call] = set()
        # A line makes nodes in a row.
        key, first, is_known = NOWHERE, _LAST_NUMBER, False
        for number, node in nodes:
            if number < first:
                key, first = made.maker_from(number)
                is_known = key != NOWHERE
            if is_known:
                self._numbers.append(number)
            lines[key].ops += 1
            call = made.calls.at(number) if has_calls else None
            series = growing.at(number) if has_series else None
            if call is not None:
                call.nodes += 1
                calls.add(call)
            # What one finding spares is not spared twice.
            dropped = alone.get(number) if alone and call is None else None
            if dropped is not None:
                dropped.nodes += 1
            if series is not None:
                series.nodes += 1
            is_again = is_known and self.passes.was_run(number)
            whose = key, call, is_again, tables.get(number), dropped, series, picks.get(number)
            if whose != before:
                before = whose
                self._handles.append(node.register_prehook(functools.partial(self._enter, before)))
                if len(self._handles) * self._node_s > allowed_s:
                    self._give_up(TOO_DEAR)
                    self.unhook()
                    self._own_s += max(0.0, clock() - begun - self._lost.take())
                    return
        self._may_read_s = _LOOKING * allowed_s
        self.operations.may_wait &= self._may_read_s > _DEVICE_READ_S
        if self.has_accounts:
            self._look_at_operations(nodes, made)
        for call in calls:
            call.passes += 1
        self._called_at = made.key
        self.nodes += len(nodes)
        self._hooked += len(self._handles)
        self._running.clear()
        self._seconds.clear()
        self.is_open = True
        lost_s = self._lost.take()
        self._begun = clock()
        self._own_s += max(0.0, self._begun - begun - lost_s)

    def leave_out_accounts(self) -> None:
        """From here on lines alone are seen: what else is told of nodes would cost too much."""
        self.has_accounts = False
        self.drops.stop()

    def _find_accounts(
        self, nodes: list[tuple[int, Any]], made: ForwardLines
    ) -> tuple[Mapping[int, Table], Mapping[int, Picks], Mapping[int, Call]]:
        """By the number of a node: the weight it picks from, the picks it is one of, what it is part of in vain."""
        tables = self.tables.find(nodes, made.maker_of)
        if not self.has_accounts:
            return tables, {}, {}
        begun = clock()
        picks = self.picks.find(nodes, made.maker_of, made.turn_of)
        alone = self.drops.find(nodes, made.calls.spans, made.maker_of, made.key)
        self.accounts_s += clock() - begun
        return tables, picks, alone

    def _look_at_operations(self, nodes: list[tuple[int, Any]], made: ForwardLines) -> None:
        begun = clock()
        for node, operation in self.operations.find(nodes, made.maker_of, self._may_read_s):
            self._handles.append(node.register_prehook(functools.partial(self._read_gradient, operation)))
        self.pair_sums.find(nodes, made.maker_of, self._may_read_s)
        self.forms.find(nodes, made.maker_of, self._may_read_s)
        self.accounts_s += clock() - begun

    def _walk(self, tensors: Any, until: float) -> list[tuple[int, Any]]:
        """The nodes that the backward of these will run, with their numbers; `until` is processor time."""
        with self._without_overrides():
            given = tensors if isinstance(tensors, tuple | list) else (tensors,)
            waiting = [node for node in (tensor.grad_fn for tensor in given) if node is not None]
        seen = set(waiting)
        nodes: list[tuple[int, Any]] = []
        self._leaves = []
        while waiting:
            node = waiting.pop()
            number = node._sequence_nr()
            if number >= _LAST_NUMBER:
                _add_leaf(node, self._leaves)
                self.tables.meet(node)
                self.drops.meet(node)
                continue
            nodes.append((number, node))
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    waiting.append(following)
            if len(nodes) % _NODES_BETWEEN_CHECKS == 0 and time.thread_time() > until:
                self._give_up(TOO_DEAR)
                return []
        return nodes

    def _enter(self, whose: _Whose, gradients: Any) -> None:
        """The nodes of another line begin."""
        try:
            now = clock()
            me = get_ident()
            # What autograd does before its first node is for that one.
            before, since = self._running.get(me) or (whose, now if self._running else self._begun)
            self._add(before, now - since - self._node_s)
            if self.track is not None:
                self.track.append((now, "backward", whose))
            since = clock()
            self._own_s += since - now
            if since - now > LONG_S:
                self._own_s -= min(since - now, self._lost.take())
                since = clock()
            self._running[me] = whose, since
        except Exception as error:
            self._give_up(error)

    def _read_gradient(self, operation: Operation, gradients: Any) -> None:
        """One of the heaviest nodes begins; what this takes is not its time."""
        try:
            if self._may_read_s <= 0:
                return
            now = clock()
            self.operations.read_gradient(operation, gradients)
            own_s = clock() - now
            self._may_read_s -= own_s
            me = get_ident()
            if me in self._running:
                whose, since = self._running[me]
                self._running[me] = whose, since + own_s
            # What was lost in here is neither a cost of ours, nor to be taken off the node's time again.
            self._own_s += own_s if own_s < LONG_S else max(0.0, own_s - self._lost.take())
        except Exception as error:
            self._give_up(error)

    def finish(self, lines: Mapping[Key, LineTotals]) -> None:
        now = clock()
        for whose, since in self._running.values():
            self._add(whose, now - since)
        again_s = 0.0
        for (key, call, is_again, table, dropped, series, picks), seconds in self._seconds.items():
            lines[key].backward_s += seconds
            if dropped is not None:
                dropped.backward_s += seconds
            if table is not None:
                table.backward_s += seconds
            if picks is not None:
                picks.backward_s += seconds
            if call is not None:
                call.backward_s += seconds
            if series is not None:
                series.backward_s += seconds
            again_s += seconds if is_again else 0.0
        self.passes.end(self._called_at, self._numbers, self._leaves, again_s)
        self.drops.end_pass()
        self.unhook()
        self._own_s += clock() - now

    def _add(self, whose: _Whose, seconds: float) -> None:
        if seconds > LONG_S:
            seconds -= self._lost.take()
        self._seconds[whose] = self._seconds.get(whose, 0.0) + max(0.0, seconds)

    def unhook(self) -> None:
        self.is_open = False
        self.tables.forget_met()
        self.drops.forget_met()
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()


# Which nodes a step runs more than once, in several backward passes over one graph. Where nobody touches the gradients
# in between, one pass over the sum of the losses gives the same gradients.

_MOST_LEAVES = 16  # whose gradients are looked at


@dataclass(slots=True)
class Again:
    """What the backward passes that one line calls run again."""

    passes: int = 0
    nodes: int = 0
    seconds: float = 0.0


class BackwardPasses:
    """Those of one step."""

    def __init__(self) -> None:
        self._ran: set[int] = set()  # numbers of nodes
        # Weights that the last passes reached: weak references to one and to its gradient, and the gradient's version.
        self._gradients: list[tuple[Any, Any, int]] = []
        self._is_partial = False
        # What is run again that has run before, by the line that calls the pass.
        self.again: dict[Key, Again] = {}

    def begin(self, is_partial: bool) -> None:
        """A pass begins; `is_partial`: it computes some of the gradients only."""
        self._is_partial = is_partial
        if is_partial or not all(_is_untouched(*gradient) for gradient in self._gradients):
            self.forget()

    def forget(self) -> None:
        """What comes next is no sum with what was: an optimizer has stepped, or somebody has touched the gradients."""
        self._ran.clear()
        self._gradients.clear()

    def was_run(self, number: int) -> bool:
        return number in self._ran

    def end(self, key: Key, numbers: list[int], leaves: list[Any], seconds: float) -> None:
        """The pass has ended: the nodes it ran, some of the weights it reached, and what nodes took that ran again."""
        again = sum(number in self._ran for number in numbers)
        if again:
            seen = self.again.setdefault(key, Again())
            seen.passes += 1
            seen.nodes += again
            seen.seconds += seconds
        if not self._is_partial:
            self._ran.update(numbers)
            self._gradients = [noted for reference in leaves if (noted := _gradient_of(reference)) is not None]


def _add_leaf(node: Any, leaves: list[Any]) -> None:
    """Note the weight that a node at the end of the graph adds a gradient to, weakly."""
    if len(leaves) < _MOST_LEAVES:
        variable = getattr(node, "variable", None)
        if variable is not None:
            leaves.append(weakref.ref(variable))


def _gradient_of(reference: Any) -> tuple[Any, Any, int] | None:
    weight = reference()
    gradient = None if weight is None else weight.grad
    return None if gradient is None else (reference, weakref.ref(gradient), gradient._version)


def _is_untouched(weight: Any, gradient: Any, version: int) -> bool:
    was, owner = gradient(), weight()
    return was is not None and owner is not None and owner.grad is was and was._version == version


# Large weights of which a step picks a few rows, and whose gradient is dense all the same. Such a gradient is mostly
# zeros: backward fills it, and the optimizer goes over all rows. Which rows were picked need not be known: their number
# is in the shape of the node that picks them. No tensor is kept.

# Smaller ones are soon gone over.
_LEAST_BYTES = 1 << 20
_MOST_TABLES = 32
# Nodes whose backward writes to the elements that forward has picked, and leaves all others zero.
_PICKS = ("EmbeddingBackward", "IndexSelectBackward", "IndexBackward", "GatherBackward", "EmbeddingBagBackward")


@dataclass(slots=True, eq=False)
class Table:
    """A weight of which rows are picked, over one step."""

    weight: Any  # weakly
    key: Key  # the line that picks first
    uses: int = 0
    picked: int = 0  # elements; one that is picked twice counts twice
    is_dense: bool = True  # its gradient, but for the rows; False: it is sparse, or all of it is used elsewhere
    backward_s: float = 0.0


class Tables:
    """Those of one step."""

    def __init__(self) -> None:
        self._known: dict[int, Table] = {}
        self._large: dict[Any, Any] = {}  # of the pass under way: nodes of large weights, and these

    def meet(self, node: Any) -> None:
        """A node at the end of the graph, which adds to the gradient of a weight."""
        weight = getattr(node, "variable", None)
        if weight is not None and len(self._large) < _MOST_TABLES and _table_bytes(weight) >= _LEAST_BYTES:
            self._large[node] = weight

    def find(self, nodes: Sequence[tuple[int, Any]], maker_of: Any) -> dict[int, Table]:
        """What picks from the large weights that were met, by the number of its node. They are let go of."""
        large, self._large = self._large, {}
        found: dict[int, Table] = {}
        for number, node in nodes if large else ():
            for following, _ in node.next_functions:
                weight = large.get(following)
                if weight is not None:
                    table = self._known.setdefault(id(weight), Table(weakref.ref(weight), maker_of(number)))
                    if _counts_pick(table, node):
                        found[number] = table
        return found

    def forget_met(self) -> None:
        self._large.clear()

    def told(self) -> list[Table]:
        """Those with a dense gradient of picked rows."""
        return [table for table in self._known.values() if table.is_dense and table.uses]


def _counts_pick(table: Table, node: Any) -> bool:
    """Does this node pick from it, for a dense gradient?"""
    name = node.name()
    picked = _picked(node, name) if name.startswith(_PICKS) else None
    if picked is None or getattr(node, "_saved_sparse", False) or getattr(node, "_saved_sparse_grad", False):
        table.is_dense = False
        return False
    table.uses += 1
    table.picked += picked
    return True


def _picked(node: Any, name: str) -> int | None:
    """The number of elements; None where it cannot be told."""
    made = node._input_metadata[0].shape
    if not name.startswith("EmbeddingBag"):
        return int(math.prod(made))
    # Rows that are summed up in the result.
    indices = saved_tensor(getattr(node, "_raw_saved_indices", None))
    return None if indices is None else int(indices.numel()) * int(made[-1])


def describe_tables(
    tables: Sequence[Table], optimizers: Sequence[Any], made: Sequence[tuple[Any, tuple[str, int]]]
) -> Iterator[tuple[Key, dict[str, object]]]:
    """With the optimizer that updates each, and the line that made it, as far as `made` tells."""
    if not tables:
        return
    living = [optimizer for reference in optimizers if (optimizer := reference()) is not None]
    sizes = {
        id(weight): (optimizer, group, _table_bytes(weight))
        for optimizer in living
        for group in optimizer.param_groups
        for weight in group["params"]
    }
    all_bytes = sum(size for _, _, size in sizes.values())
    for table in tables:
        weight = table.weight()
        if weight is None or id(weight) not in sizes:
            continue
        optimizer, group, size = sizes[id(weight)]
        places = [place for module, place in made if getattr(module(), "weight", None) is weight]
        yield (
            table.key,
            {
                "made_at": places[0] if places else None,
                "elements": weight.numel(),
                "picked": table.picked,
                "uses": table.uses,
                "bytes": size,
                "all_bytes": all_bytes,
                "backward_ms": round(1e3 * table.backward_s, 4),
                "optimizer": f"{type(optimizer).__module__}.{type(optimizer).__qualname__}",
                "fused": bool(group.get("fused")),
                "decays": bool(group.get("weight_decay")) or bool(group.get("momentum")),
            },
        )


def _table_bytes(weight: Any) -> int:
    try:
        return int(weight.numel() * weight.element_size())
    except (RuntimeError, ValueError, AttributeError):
        return 0
