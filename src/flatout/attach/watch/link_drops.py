"""Which gradients one sampled step computes and drops: they are cleared before the optimizer of their weights steps.

In the critic's step of a GAN, `critic(generator(z))` without `detach`: backward goes through the generator, whose
gradients are cleared before they are used. An autograd node works in vain if all weights that it leads to get such
gradients. Weights count by the optimizer that has them.

A pass may be for its input alone: an attack on an image, a sample that is moved along the gradient of an energy. Its
leaf is no weight. If the gradients of all weights that it reaches are cleared before they are used, what the nodes
take for them is in vain, and the gradients go on through them.

What a step leaves may be cleared only some steps later: a generator that steps after every fifth step of its critic. So
some of these gradients are followed until they are used or cleared.

Gradients that are dropped are often there to be read (surgery on gradients, Fisher information). So nothing is said
unless other gradients of the same pass were used before these were cleared, nobody holds on to them, and neither the
weights nor what their optimizer finds were changed by hand. No tensor is kept: only ids, versions and weak references.
"""

from __future__ import annotations

import math
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..tracer import clock
from .link_calls import NOWHERE, Call, Key, bytes_of, nothing, version_of

DROPPED = "dropped"

# Optimizers as bits: that of a weight, or those of all weights that a node leads to.
_OTHER = 1  # no optimizer has the weight, or several
_MOST_OPTIMIZERS = 30
# A result that at most so many uses of weights lead to may be a weight in another form: scaled, or by direction and
# norm.
_FEW = 3

# Weights of each optimizer whose gradients are followed after the step.
_MOST_FOLLOWED = 8
_MOST_LATER = 64  # steps of optimizers in which they are

_PENDING, _CLEARED, _CHANGED, _REPLACED = range(4)  # what has become of a gradient


@dataclass(slots=True, eq=False)
class _Pass:
    """A backward pass. Numbers of weights are by optimizer."""

    reached: dict[int, int] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)
    used: int = 0  # optimizers that found gradients of this pass when they stepped
    unclear: int = 0
    # What nodes that use a weight themselves lead to, by the weight's optimizer.
    through: dict[int, int] = field(default_factory=dict)
    for_input: Call | None = None  # nodes that compute gradients of weights, in a pass that leads to an input as well

    def is_dropped(self, owner: int) -> bool:
        return 0 < self.dropped.get(owner, 0) == self.reached[owner] and not owner & (self.used | self.unclear)

    def lose(self, owner: int) -> None:
        """A gradient has been cleared. If none of the others has been used so far, all of them may be there to read."""
        if self.used:
            self.dropped[owner] = self.dropped.get(owner, 0) + 1
        else:
            self.unclear |= owner

    def is_for_input(self, trained: int) -> bool:
        """Are the gradients of all its weights dropped, and has each of these been trained otherwise?"""
        owners = [owner for owner in self.reached if owner != _OTHER]
        return bool(owners) and all(owner & trained and self.is_dropped(owner) for owner in owners)


# To whose weights a node leads, and the elements of each; None if these are many.
_End = tuple[int, tuple[int, ...] | None]
_UNKNOWN: _End = (_OTHER, None)


@dataclass(slots=True)
class _Leaf:
    """A weight with a gradient that its optimizer has not used yet."""

    weight: Any  # weakly, as the gradient
    owner: int
    weight_version: int | None
    gradient: Any
    version: int | None
    passes: list[_Pass]


@dataclass(slots=True, eq=False)
class _Alone:
    """Nodes of one call, or of one line, that lead to weights of these optimizers alone, in one pass."""

    call: Call
    reach: int
    of: _Pass


class Drops:
    """Those of one step. With a single optimizer there is nothing to tell, but for passes that lead to an input."""

    def __init__(self, torch: Any, optimizers: Sequence[Any]) -> None:
        """`optimizers` as weak references."""
        self._parameter = torch.nn.Parameter
        # Weak references with the bit of each: an id alone may be another's by and by.
        self._bits: list[tuple[Any, int]] = []
        self._owners: dict[int, tuple[Any, int]] = {}
        self._leaves: dict[int, _Leaf] = {}
        # What steps before this one have left: what becomes of it will become of what this one leaves.
        self._left = _Pass(used=_OTHER)
        self._passes: list[_Pass] = []
        self._alone: list[_Alone] = []
        self._met: dict[Any, _End] = {}  # of the pass under way: nodes at the end of the graph
        self._reached: list[tuple[Any, int]] = []  # and the weights of these, weakly, with their optimizers
        self._stepping = 0
        # After the step: whether there was another pass, and the optimizers that stepped behind it.
        self._has_later_pass = False
        self._stepped_later = 0
        self._is_in_pass = False
        self._by_hand = 0  # optimizers that found gradients which no pass made
        living = [optimizer for reference in optimizers if (optimizer := reference()) is not None]
        self._has_input = False  # the pass under way leads to one
        # Of one optimizer, until a pass leads to an input: it, its weights, and the ends of the graph that were met.
        self._single: tuple[Any, frozenset[int]] | None = None
        self._ends: list[Any] = []
        self.is_on = 1 < len(living) <= _MOST_OPTIMIZERS
        if self.is_on:
            self._begin(living)
        elif len(living) == 1:
            self._single = weakref.ref(living[0]), frozenset(map(id, _weights_of(living[0])))

    def _begin(self, optimizers: list[Any]) -> None:
        for place, optimizer in enumerate(optimizers):
            owner = 2 << place
            self._bits.append((weakref.ref(optimizer), owner))
            for weight in _weights_of(optimizer):
                known = self._owners.get(id(weight))
                self._owners[id(weight)] = weakref.ref(weight), owner if known is None else _OTHER
        for reference, owner in self._owners.values():
            self._note(reference, owner, self._left)

    def stop(self) -> None:
        """This step is none that could be judged."""
        self.is_on = False
        self._single = None
        self._leaves.clear()
        self._alone.clear()
        self.forget_met()

    def forget_met(self) -> None:
        self._met.clear()
        self._reached.clear()
        self._ends.clear()
        self._has_input = False

    # The graph of a pass.

    def begin_pass(self, is_partial: bool) -> None:
        self.forget_met()
        if is_partial or self._stepping:
            self.stop()  # gradients of some weights only, or of a closure that the optimizer calls
        if self.is_on:
            self._look_at_all()

    def meet(self, node: Any) -> None:
        """A node at the end of the graph, which adds to the gradient of a weight."""
        if self._single is not None:
            self._wait_for_input(node, *self._single)
        if not self.is_on:
            return
        weight = getattr(node, "variable", None)
        if weight is None:
            self._met[node] = _UNKNOWN
            return
        reference, owner = self._owners.get(id(weight), (nothing, _OTHER))
        if reference() is not weight:
            reference, owner = weakref.ref(weight), _OTHER
            self._has_input |= not isinstance(weight, self._parameter)
        self._met[node] = owner, (weight.numel(),)
        self._reached.append((reference, owner))

    def _wait_for_input(self, node: Any, optimizer: Any, own: frozenset[int]) -> None:
        """With a single optimizer nothing is noted before a pass leads to an input."""
        weight = getattr(node, "variable", None)
        if weight is None or id(weight) in own or isinstance(weight, self._parameter):
            self._ends.append(node)
            return
        self._single = None
        living = optimizer()
        if living is not None:
            self.is_on = True
            self._begin([living])
            ends, self._ends = self._ends, []
            for end in ends:
                self.meet(end)

    def find(
        self, nodes: Sequence[tuple[int, Any]], spans: Sequence[Call], maker_of: Callable[[int], Key], caller: Key
    ) -> Mapping[int, Call]:
        """By the number of each node that may turn out to work in vain, what it is part of.

        `nodes`: the last made first. `spans`: the calls of modules that have ended. `caller`: the line of the pass.
        """
        if not self.is_on:
            return {}
        now = _Pass(used=_OTHER if self._has_input else 0)
        self._passes.append(now)
        self._is_in_pass = True
        met, self._met = self._met, {}
        whole = 0
        for owner, _ in met.values():
            whole |= owner
        if not whole & (whole - 1):
            return {}  # all of it for one optimizer
        if self._has_input:
            now.for_input = Call(caller, "", True, DROPPED, passes=1, flows_through=True)
            return dict.fromkeys(_with_weights(nodes, met), now.for_input)
        reaches = _reaches(nodes, met, now.through)
        # A weight that is used on the way to others is not what a `detach` could spare (a critic, for its generator).
        spared = sum(owner for owner, through in now.through.items() if not through & _OTHER and through != whole)
        alone = [(number, reach) for number, reach in reaches if reach and not reach & ~spared]
        if not alone:
            return {}
        within = dict(_within_calls(alone, [number for number, _ in reaches], spans))
        made: dict[tuple[Key, str, int], Call] = {}
        found: dict[int, Call] = {}
        for number, reach in alone:
            span = within.get(number)
            key, module = (maker_of(number), "") if span is None else (span.key, span.module)
            if key == NOWHERE:
                continue
            call = made.get((key, module, reach))
            if call is None:
                call = made[key, module, reach] = Call(key, module, True, DROPPED, passes=1)
                self._alone.append(_Alone(call, reach, now))
            found[number] = call
        return found

    # What becomes of the gradients.

    def end_pass(self) -> None:
        reached, self._reached = self._reached, []
        if not self.is_on or not self._is_in_pass:
            return
        self._is_in_pass = False
        for reference, owner in reached:
            if not self._note(reference, owner, self._passes[-1]):
                self._passes[-1].unclear |= owner  # used within the pass, by a hook

    def optimizer_begins(self, optimizer: Any) -> None:
        """It uses the gradients that are there."""
        self._stepping += 1
        if self._is_in_pass:
            self.stop()  # a hook steps as soon as there is a gradient
        if not self.is_on:
            return
        owner = sum(bit for reference, bit in self._bits if reference() is optimizer)
        self._look_at_all(owner)
        for number, leaf in [item for item in self._leaves.items() if item[1].owner == owner]:
            for seen in leaf.passes:
                seen.used |= owner
            del self._leaves[number]

    def optimizer_ends(self) -> None:
        self._stepping = max(0, self._stepping - 1)

    def finish(self) -> list[Call]:
        """What was in vain, once for each line and pass, now that the step has ended."""
        if not self.is_on:
            return []
        self._look_at_all()
        for number, leaf in list(self._leaves.items()):
            if self._left.is_dropped(leaf.owner):
                del self._leaves[number]
                for seen in leaf.passes:
                    if seen is not self._left:
                        seen.lose(leaf.owner)
        # One that did not step may need what is there later on.
        trained = self._stepped_later
        for seen in self._passes:
            trained |= seen.used
        trained &= ~self._by_hand
        judged = {id(seen): _spared(seen, trained) for seen in self._passes}
        alone = [alone.call for alone in self._alone if not alone.reach & ~judged[id(alone.of)]]
        inner = [seen.for_input for seen in self._passes if seen.for_input is not None and seen.is_for_input(trained)]
        return [call for call in (*alone, *inner) if call.nodes]

    # What becomes of those that the step has left.

    @property
    def is_undecided(self) -> bool:
        """Is something of which nobody knows yet whether it was in vain?"""
        return self.is_on and any(self._is_of_use(leaf) for leaf in self._leaves.values())

    def _is_of_use(self, leaf: _Leaf) -> bool:
        return any(
            alone.of is seen and alone.reach & leaf.owner and alone.call.nodes
            for seen in leaf.passes
            for alone in self._alone
        )

    def follow_few(self) -> None:
        """From here on a few of the gradients that matter stand for all."""
        kept: dict[int, int] = {}
        for number, leaf in list(self._leaves.items()):
            kept[leaf.owner] = kept.get(leaf.owner, 0) + self._is_of_use(leaf)
            if not self._is_of_use(leaf) or kept[leaf.owner] > _MOST_FOLLOWED:
                del self._leaves[number]
                for seen in leaf.passes:
                    seen.reached[leaf.owner] -= 1

    def later_pass_begins(self, is_partial: bool) -> None:
        self.begin_pass(is_partial)
        self._has_later_pass = True

    def later_step_begins(self, optimizer: Any) -> None:
        self.optimizer_begins(optimizer)
        if self._has_later_pass:
            self._stepped_later |= sum(bit for reference, bit in self._bits if reference() is optimizer)

    def _note(self, reference: Any, owner: int, now: _Pass) -> bool:
        """The gradient of this weight holds what the pass has added. Is there any?"""
        weight = reference()
        gradient = None if weight is None else weight.grad
        if gradient is None:
            return False
        now.reached[owner] = now.reached.get(owner, 0) + 1
        if owner != _OTHER:
            leaf = self._leaves.get(id(weight))
            passes = [now] if leaf is None else [*leaf.passes, now]
            versions = version_of(weight), version_of(gradient)
            self._leaves[id(weight)] = _Leaf(reference, owner, versions[0], weakref.ref(gradient), versions[1], passes)
        return True

    def _look_at_all(self, stepping: int = 0) -> None:
        for number, leaf in list(self._leaves.items()):
            state = _state_of(leaf, leaf.owner == stepping, self._has_later_pass)
            if state == _PENDING:
                continue
            del self._leaves[number]
            if state == _REPLACED:
                self._by_hand |= leaf.owner
            for seen in leaf.passes:
                if state == _CLEARED:
                    seen.lose(leaf.owner)
                else:
                    seen.unclear |= leaf.owner


class LaterSteps:
    """Follows what the sampled step has left, until that is used or cleared, or too many steps have passed.

    It stands where the sample stood: the patches tell it of passes and optimizers.
    """

    def __init__(self, drops: Drops, index: int) -> None:
        self._drops, self.index = drops, index
        self._left = _MOST_LATER
        self.own_s = 0.0
        drops.follow_few()

    @property
    def is_over(self) -> bool:
        return self._left <= 0 or not self._drops.is_undecided

    def arrived(self) -> None:
        pass

    def backward_begins(self, tensors: Any, create_graph: bool, is_partial: bool) -> None:
        self._tell(lambda: self._drops.later_pass_begins(is_partial))

    def backward_ends(self) -> None:
        pass

    def optimizer_begins(self, optimizer: Any) -> None:
        self._left -= 1
        self._tell(lambda: self._drops.later_step_begins(optimizer))

    def optimizer_ends(self) -> None:
        self._drops.optimizer_ends()

    def _tell(self, call: Callable[[], None]) -> None:
        if self._left <= 0:
            return
        begun = clock()
        try:
            call()
        except Exception:
            self._left = 0  # nothing is said of it
        self.own_s += clock() - begun


def _state_of(leaf: _Leaf, is_stepping: bool, may_grow: bool) -> int:
    """`is_stepping`: its optimizer is about to use what is there, clipped or not. `may_grow`: passes may have added."""
    weight, was = leaf.weight(), leaf.gradient()
    if weight is None or version_of(weight) != leaf.weight_version:
        return _CHANGED  # somebody trains by hand
    gradient = weight.grad
    if gradient is None:
        return _CLEARED if was is None else _CHANGED  # somebody holds on to it
    if gradient is not was:
        return _REPLACED
    if is_stepping or version_of(gradient) == leaf.version:
        return _PENDING
    # Clipped, or cleared in place: that is seen where it can be read.
    values = bytes_of(gradient)
    if values is not None and not any(values):
        return _CLEARED
    return _PENDING if may_grow else _CHANGED


def _spared(seen: _Pass, judged: int) -> int:
    """The optimizers whose gradients the pass could do without, of those that may be judged."""
    dropped = sum(owner for owner in seen.reached if owner & judged and seen.is_dropped(owner))
    while True:
        held = sum(owner for owner, through in seen.through.items() if owner & dropped and through & ~dropped)
        if not held:
            return dropped
        dropped &= ~held


def _reaches(
    nodes: Sequence[tuple[int, Any]], met: Mapping[Any, _End], through: dict[int, int]
) -> list[tuple[int, int]]:
    """To whose weights each node leads, the first made first; fills `through`."""
    known: dict[Any, _End] = dict(met)
    found: list[tuple[int, int]] = []
    for number, node in reversed(nodes):
        reach = direct = 0
        few: tuple[int, ...] | None = ()
        edges = node.next_functions
        for after, _ in edges:
            if after is not None:
                # One that is not known was made in another thread, which has its own numbers.
                end, sizes = known.get(after, _UNKNOWN)
                reach |= end
                if after in met:
                    direct |= end
                few = None if few is None or sizes is None or len(few) + len(sizes) > _FEW else few + sizes
        known[node] = reach, few
        found.append((number, reach))
        if direct:
            for owner in _parts(direct):
                through[owner] = through.get(owner, 0) | reach
        if reach & (reach - 1):
            # A weight that is scaled or normed first is used here all the same.
            for owner in _parts(_used_in_another_form(edges, reach, known, met)):
                through[owner] = through.get(owner, 0) | reach | _OTHER
    return found


def _with_weights(nodes: Sequence[tuple[int, Any]], met: Mapping[Any, _End]) -> Iterator[int]:
    """Nodes that compute gradients of weights: those that lead to weights alone, in one of their branches at least."""
    known = {node: reach for node, (reach, _) in met.items()}
    for number, node in reversed(nodes):
        # One that is not known was made in another thread.
        ends = [known.get(after, _OTHER) for after, _ in node.next_functions if after is not None]
        reach = 0
        for end in ends:
            reach |= end
        known[node] = reach
        if any(end and not end & _OTHER for end in ends):
            yield number


def _used_in_another_form(edges: Any, reach: int, known: Mapping[Any, _End], met: Mapping[Any, _End]) -> int:
    """The optimizers of such weights, where a node leads to others as well."""
    owners = 0
    for after, place in edges:
        if after is not None and after not in met:
            end, sizes = known.get(after, _UNKNOWN)
            if end != reach and sizes is not None and _is_like_weight(after, place, sizes):
                owners |= end
    return owners


def _is_like_weight(node: Any, place: int, sizes: tuple[int, ...]) -> bool:
    """Is the result of this node a weight in another form, not what is computed with it?"""
    shapes = getattr(node, "_input_metadata", None)
    return shapes is None or int(math.prod(shapes[place].shape)) in sizes


def _within_calls(
    alone: Sequence[tuple[int, int]], numbers: Sequence[int], spans: Sequence[Call]
) -> Iterator[tuple[int, Call]]:
    """Which of these nodes were made in the call of a module that made no others: the outermost of such calls."""
    own = [number for number, _ in alone]
    done = -1, -1
    for span in reversed(spans):  # an outer call comes after those within it
        if done[0] <= span.first < done[1]:
            continue
        begin, end = bisect_left(own, span.first), bisect_left(own, span.last)
        among = bisect_left(numbers, span.last) - bisect_left(numbers, span.first)
        if end - begin == among and len({reach for _, reach in alone[begin:end]}) == 1:
            done = span.first, span.last
            for number in own[begin:end]:
                yield number, span


def _parts(owners: int) -> Iterator[int]:
    while owners:
        owner = owners & -owners
        yield owner
        owners ^= owner


def _weights_of(optimizer: Any) -> Iterable[Any]:
    return (weight for group in optimizer.param_groups for weight in group["params"])
