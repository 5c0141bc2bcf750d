"""What the windows of the first rank tell: what each line takes of an ordinary step, its operations in backward
included, and which lists grow from step to step.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from flatout.diagnose.ranks import Rank, told
from flatout.diagnose.source_text import whole_file
from flatout.records.evidence import (
    BackwardAgain,
    EmptyFactor,
    GrowingCalls,
    HeavyLine,
    Holder,
    NeedlessCall,
    OpCost,
    OtherForm,
    PickedParts,
    PickedTable,
    SubnormalInput,
    SummedPairs,
)
from flatout.records.report import Location, PhaseShare
from flatout.source.syntax.module import parse_text
from flatout.store.run import StoredRun

_Place = tuple[str, int, bool]


@dataclass(frozen=True, slots=True)
class _Line:
    """A line in one window; times are milliseconds."""

    function: str
    calls: float
    forward: float
    backward: float
    ops: float


_ABSENT = _Line("", 0.0, 0.0, 0.0, 0.0)
# In a recorded line, where the time in a phase is, and the name of that of all lines.
_PHASES = ((5, "forward_ms"), (6, "backward_ms"))


def op_costs(ranks: Sequence[Rank], phases: Mapping[str, PhaseShare]) -> tuple[OpCost, ...]:
    """The dearest first; empty where no window was recorded. `phases` are those of a mean step."""
    windows = _windows(ranks)
    if not windows:
        return ()
    phase_ms = {name: phase.ms for name, phase in phases.items()}
    costs = _costs(windows, phase_ms.get("forward", 0.0), phase_ms.get("backward", 0.0))
    return tuple(sorted(costs, key=lambda cost: -(cost.forward_ms + (cost.backward_ms or 0.0))))


def needless_calls(ranks: Sequence[Rank], phases: Mapping[str, PhaseShare]) -> tuple[NeedlessCall, ...]:
    """Calls of modules that the step could do without, the dearest first; those of the same line are one."""
    windows = _windows(ranks, "calls")
    groups: dict[tuple[str, str, str, int], list[NeedlessCall]] = defaultdict(list)
    scales = tuple(_scale(windows, phases, phase) for phase in ("forward", "backward"))
    for window in windows:
        for call in window.get("calls", ()):
            if call.get("at") and call.get("kind") in ("repeat", "unheld", "dropped"):
                found = _call(call, *scales)
                groups[found.kind, found.module, found.location.file, found.location.line].append(found)
    # What is dropped is seen by what becomes of nodes.
    with_nodes = sum("nodes" not in window.get("without", ()) for window in windows)
    merged = [_merge(calls, with_nodes if kind == "dropped" else len(windows)) for (kind, *_), calls in groups.items()]
    return tuple(sorted(merged, key=lambda call: -(call.forward_ms + call.backward_ms)))


def backward_again(ranks: Sequence[Rank], phases: Mapping[str, PhaseShare]) -> tuple[BackwardAgain, ...]:
    """Backward passes over a graph that others went over before, by the line that calls them; the dearest first."""
    windows = _windows(ranks)
    found: dict[tuple[str, int], BackwardAgain] = {}
    share = _scale(windows, phases, "backward") / max(1, len(windows))
    for window in windows:
        for again in window.get("again", ()):
            if not again.get("at"):
                continue
            file, line, function = again["at"]
            place = str(file), int(line)
            before = found.get(place, BackwardAgain(Location(*place), str(function), 0.0, 0.0, 0.0))
            found[place] = replace(
                before,
                passes=before.passes + again["passes"] / len(windows),
                nodes=before.nodes + again["nodes"] / len(windows),
                backward_ms=before.backward_ms + again["backward_ms"] * share,
            )
    return tuple(sorted(found.values(), key=lambda again: -again.backward_ms))


def growing_calls(ranks: Sequence[Rank], phases: Mapping[str, PhaseShare]) -> tuple[GrowingCalls, ...]:
    """Modules that are called with longer and longer inputs, by the line that calls them; the dearest first."""
    windows = _windows(ranks, "calls")
    groups: dict[tuple[str, Location], list[GrowingCalls]] = defaultdict(list)
    scales = tuple(_scale(windows, phases, phase) for phase in ("forward", "backward"))
    for window in windows:
        for told_of in window.get("growing", ()):
            if told_of.get("at"):
                found = _growing(told_of, *scales)
                groups[found.module, found.location].append(found)
    merged = [_merge_growing(calls, len(windows)) for calls in groups.values()]
    return tuple(sorted(merged, key=lambda calls: -(calls.forward_ms + calls.backward_ms)))


def _growing(told_of: Mapping[str, Any], forward_scale: float, backward_scale: float) -> GrowingCalls:
    file, line, function = told_of["at"]
    return GrowingCalls(
        module=str(told_of["module"]),
        location=Location(str(file), int(line)),
        function=str(function),
        sequences=float(told_of["sequences"]),
        calls=float(told_of["calls"]),
        dimension=int(told_of["dimension"]),
        first_length=float(told_of["first_length"]),
        last_length=float(told_of["last_length"]),
        computed=float(told_of["computed"]),
        needed=float(told_of["needed"]),
        is_known=bool(told_of["is_known"]),
        forward_ms=float(told_of["forward_ms"]) * forward_scale,
        backward_ms=float(told_of["backward_ms"]) * backward_scale,
        fixed_ms=float(told_of["fixed_ms"]) * forward_scale,
    )


def _merge_growing(calls: Sequence[GrowingCalls], windows: int) -> GrowingCalls:
    """Of a line that some windows have not seen it is a mean too: not every step has such calls."""
    summed = ("sequences", "calls", "computed", "needed", "forward_ms", "backward_ms")
    return replace(
        calls[0],
        first_length=min(found.first_length for found in calls),
        last_length=max(found.last_length for found in calls),
        is_known=all(found.is_known for found in calls),
        fixed_ms=_mean([found.fixed_ms for found in calls]),
        **{name: sum(getattr(found, name) for found in calls) / windows for name in summed},
    )


def picked_tables(ranks: Sequence[Rank], phases: Mapping[str, PhaseShare]) -> tuple[PickedTable, ...]:
    """Large weights of which a step picks some rows, the largest first; those made at the same line are several."""
    windows = _windows(ranks, "nodes")
    groups: dict[tuple[Location, float, int], list[PickedTable]] = defaultdict(list)
    scale = _scale(windows, phases, "backward")
    for window in windows:
        seen = Counter[tuple[Location, float]]()
        for found in window.get("tables", ()):
            table = _table(found, scale)
            if table is not None:
                place = table.location, table.elements
                groups[*place, seen[place]].append(table)
                seen[place] += 1
    merged = [
        replace(
            tables[0],
            picked=_mean([table.picked for table in tables]),
            uses=_mean([table.uses for table in tables]),
            backward_ms=sum(table.backward_ms for table in tables) / len(windows),
        )
        for tables in groups.values()
    ]
    return tuple(sorted(merged, key=lambda table: -table.bytes))


def _table(found: Mapping[str, Any], scale: float) -> PickedTable | None:
    place = found.get("made_at") or found.get("at")
    if not place:
        return None
    return PickedTable(
        location=Location(str(place[0]), int(place[1])),
        elements=float(found["elements"]),
        picked=float(found["picked"]),
        uses=float(found["uses"]),
        bytes=float(found["bytes"]),
        all_bytes=float(found["all_bytes"]),
        backward_ms=float(found["backward_ms"]) * scale,
        optimizer=str(found["optimizer"]),
        fused=bool(found.get("fused")),
        decays=bool(found.get("decays")),
    )


def picked_parts(ranks: Sequence[Rank], phases: Mapping[str, PhaseShare]) -> tuple[PickedParts, ...]:
    """Tensors of which parts are picked one by one, by the line that picks; the dearest first."""
    windows = _windows(ranks, "nodes")
    seen: dict[tuple[str, int, str], list[Mapping[str, Any]]] = defaultdict(list)
    scale = _scale(windows, phases, "backward")
    for window in windows:
        for picks in window.get("picks", ()):
            if picks.get("at"):
                file, line, function = picks["at"]
                seen[str(file), int(line), str(function)].append(picks)
    found = [
        PickedParts(
            location=Location(file, line),
            function=function,
            tensors=len(told_of) / len(windows),
            count=_mean([float(picks["count"]) for picks in told_of]),
            elements=_mean([float(picks["elements"]) for picks in told_of]),
            picked=_mean([float(picks["picked"]) for picks in told_of]),
            backward_ms=scale * sum(float(picks["backward_ms"]) for picks in told_of) / len(windows),
        )
        for (file, line, function), told_of in seen.items()
    ]
    return tuple(sorted(found, key=lambda picks: -picks.backward_ms))


def summed_pairs(ranks: Sequence[Rank]) -> tuple[SummedPairs, ...]:
    """Pairs that are formed one by one and summed, by the lines that do; those with the most values first."""
    windows = _windows(ranks, "nodes")
    timed = {_frozen(value["pairs"]): value["ms"] for rank in ranks for value in told(rank.recording, "summed_pairs")}
    uses: Counter[Any] = Counter()
    for window in windows:
        for formed in window.get("pairs", ()):
            lines = tuple((str(at[0]), int(at[1])) for at in formed["at"] if at)
            if lines:
                uses[lines, _frozen(formed["pairs"])] += 1
    found = []
    for (lines, pairs), count in uses.items():
        kind, sets, rows, columns, values = pairs
        formed_ms, multiplied_ms = timed.get(pairs, (None, None))
        summed = SummedPairs(
            locations=tuple(Location(file, line) for file, line in lines),
            is_difference=kind == "difference",
            rows=rows,
            columns=columns,
            values=values,
            uses=count / len(windows),
            formed_ms=formed_ms,
            multiplied_ms=multiplied_ms,
        )
        found.append((-sets * rows * columns * values, summed))
    return tuple(summed for _, summed in sorted(found, key=lambda each: each[0]))


def other_forms(ranks: Sequence[Rank]) -> tuple[OtherForm, ...]:
    """Operations that have another form, by the lines that call them."""
    windows = _windows(ranks, "nodes")
    timed = {_frozen(value["form"]): value["ms"] for rank in ranks for value in told(rank.recording, "other_form")}
    uses: Counter[Any] = Counter()
    for window in windows:
        for found in window.get("forms", ()):
            lines = tuple((str(at[0]), int(at[1])) for at in found["at"] if at)
            if lines:
                uses[lines, _frozen(found["form"]), bool(found["is_padded"]), _frozen(found["lengths"])] += 1
    forms = []
    for (lines, form, is_padded, lengths), count in uses.items():
        kind, sizes, names, _, _, options = form
        now_forward, now_backward, other_forward, other_backward = timed.get(form, (None,) * 4)
        forms.append(
            OtherForm(
                kind=kind,
                locations=tuple(Location(file, line) for file, line in lines),
                sizes=sizes,
                names=names,
                options=options,
                uses=count / len(windows),
                is_padded=is_padded,
                lengths=lengths,
                now_ms=None if now_forward is None else (now_forward, now_backward),
                other_ms=None if other_forward is None else (other_forward, other_backward),
            )
        )
    return tuple(sorted(forms, key=lambda form: -form.saved_ms))


def heavy_lines(ranks: Sequence[Rank]) -> tuple[HeavyLine, ...]:
    """Lines with the heaviest operations of a mean step, the heaviest first."""
    windows = _windows(ranks, "nodes")
    timed = {
        tuple(value["size"]): value["ms"] for rank in ranks for value in told(rank.recording, "sparse_product")
    }  # the kind of a product is its size
    slow = {
        _frozen(value["given"]): value["ms"] for rank in ranks for value in told(rank.recording, "subnormal_operation")
    }
    seen: dict[tuple[str, int, str], list[Mapping[str, Any]]] = defaultdict(list)
    for window in windows:
        for line in window.get("operations", ()):
            if line.get("at"):
                file, number, function = line["at"]
                seen[str(file), int(number), str(function)].append(line)
    found = []
    for (file, number, function), lines in seen.items():
        operations = sum(float(line["operations"]) for line in lines)
        found.append(
            HeavyLine(
                location=Location(file, number),
                function=function,
                operations=operations / len(windows),
                unread_share=sum(float(line["unread"]) for line in lines) / operations if operations else 0.0,
                factors=tuple(_factors([factor for line in lines for factor in line["factors"]], len(windows), timed)),
                subnormals=tuple(
                    _subnormals([found for line in lines for found in line.get("subnormal", ())], len(windows), slow)
                ),
            )
        )
    return tuple(sorted(found, key=lambda line: -line.operations))


def _factors(
    seen: Sequence[Mapping[str, Any]], windows: int, timed: Mapping[tuple[int, ...], Sequence[float]]
) -> Iterator[EmptyFactor]:
    by_size: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for factor in seen:
        rows, inner, columns = (int(length) for length in factor["size"])
        by_size[rows, inner, columns].append(float(factor["density"]))
    for size, densities in by_size.items():
        dense_ms, sparse_ms = timed.get(size, (None, None))
        yield EmptyFactor(size, _mean(densities), len(densities) / windows, dense_ms, sparse_ms)


def _subnormals(
    seen: Sequence[Mapping[str, Any]], windows: int, timed: Mapping[Any, Sequence[float]]
) -> Iterator[SubnormalInput]:
    by_operation: dict[Any, list[float]] = defaultdict(list)
    for found in seen:
        by_operation[_frozen(found["given"])].append(float(found["share"]))
    for given, shares in by_operation.items():
        slow_ms, quick_ms = timed.get(given, (None, None))
        yield SubnormalInput(given[0], _mean(shares), len(shares) / windows, slow_ms, quick_ms)


def _frozen(value: Any) -> Any:
    """Lists as tuples: a key."""
    return tuple(_frozen(each) for each in value) if isinstance(value, list | tuple) else value


def _scale(windows: Sequence[Mapping[str, Any]], phases: Mapping[str, PhaseShare], phase: str) -> float:
    """A millisecond of a window in an ordinary step.

    The same for all of them: what only some steps do, a rollout every third one, makes these longer. A step with a
    window is slower than others; what counts is how the time of all of them is divided.
    """
    seen_ms = _mean([float(window.get(f"{phase}_ms", 0.0)) for window in windows]) if windows else 0.0
    return phases[phase].ms / seen_ms if seen_ms and phase in phases else 1.0


def _call(call: Mapping[str, Any], forward_scale: float, backward_scale: float) -> NeedlessCall:
    file, line, function = call["at"]
    first = call.get("first_at")
    return NeedlessCall(
        kind=call["kind"],
        module=str(call.get("module", "")),
        location=Location(str(file), int(line)),
        function=str(function),
        first_location=Location(str(first[0]), int(first[1])) if first else None,
        calls=1.0,
        forward_ms=float(call.get("forward_ms", 0.0)) * forward_scale,
        backward_ms=float(call.get("backward_ms", 0.0)) * backward_scale,
        is_random=bool(call.get("is_random")),
        moves_state=bool(call.get("moves_state")),
        flows_through=bool(call.get("flows_through")),
        device_ms=_device_ms(call.get("device_ms")),
    )


def _device_ms(told_ms: Sequence[float | None] | None) -> tuple[float, float] | None:
    if not told_ms or all(ms is None for ms in told_ms):
        return None
    forward_ms, backward_ms = (ms or 0.0 for ms in told_ms)
    return forward_ms, backward_ms


def _merge(calls: Sequence[NeedlessCall], windows: int) -> NeedlessCall:
    return replace(
        calls[0],
        calls=len(calls) / windows,
        forward_ms=sum(call.forward_ms for call in calls) / windows,
        backward_ms=sum(call.backward_ms for call in calls) / windows,
        is_random=any(call.is_random for call in calls),
        moves_state=any(call.moves_state for call in calls),
        flows_through=any(call.flows_through for call in calls),
        device_ms=_recorded_ms(calls),
    )


def _recorded_ms(calls: Sequence[NeedlessCall]) -> tuple[float, float] | None:
    """In the one window that recorded kernels, a step's."""
    known = [call.device_ms for call in calls if call.device_ms is not None]
    return (sum(ms for ms, _ in known), sum(ms for _, ms in known)) if known else None


def _windows(ranks: Sequence[Rank], part: str = "lines") -> list[Mapping[str, Any]]:
    """Of the first rank that has some, those of steady steps; a run so short that it has none has the others.

    Only those that took account of this part: one that had to be cheap is of lines, without "calls" and "nodes".
    """
    for rank in ranks:
        every = _with_later_calls(told(rank.recording, "window"), told(rank.recording, "later_calls"))
        windows = [window for window in every if part not in window.get("without", ())]
        if windows:
            return [window for window in windows if int(window.get("index", 0)) >= rank.first_steady] or list(windows)
    return []


def _with_later_calls(
    windows: Sequence[Mapping[str, Any]], later: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """What was in vain in a step may be known only some steps later."""
    calls: dict[Any, list[Any]] = defaultdict(list)
    for found in later:
        calls[found.get("index")] += found.get("calls", ())
    return [{**window, "calls": [*window.get("calls", ()), *calls[window.get("index")]]} for window in windows]


def _costs(windows: Sequence[Mapping[str, Any]], forward_ms: float, backward_ms: float) -> Iterator[OpCost]:
    # A step with a window is slower than others. What counts is how the time of all of them is divided.
    each = [dict(_lines(window)) for window in windows]
    places = dict.fromkeys(place for lines in each for place in lines)
    found = {place: _typical([lines.get(place, _ABSENT) for lines in each]) for place in places}
    forward, backward = sum(line.forward for line in found.values()), sum(line.backward for line in found.values())
    seen_backward = any(float(window.get("backward_ms", 0.0)) > 0 for window in windows)
    known = [_mean([_known_share(window, *where) for window in windows]) for where in _PHASES]
    for (file, number, in_module), line in found.items():
        yield OpCost(
            location=Location(file, number),
            function=line.function,
            in_module=in_module,
            calls=line.calls,
            forward_ms=forward_ms * known[0] * line.forward / forward if forward else 0.0,
            backward_ms=backward_ms * known[1] * line.backward / backward if seen_backward and backward else None,
            backward_ops=line.ops,
        )


def _lines(window: Mapping[str, Any]) -> Iterator[tuple[_Place, _Line]]:
    merged: dict[_Place, _Line] = {}
    for file, number, function, in_module, calls, forward, backward, ops in window.get("lines", ()):
        place = str(file), int(number), bool(in_module)
        # A comprehension and the function it is in may share a line; the dearer one comes first.
        before = merged.get(place, _ABSENT)
        merged[place] = _Line(
            before.function or str(function),
            before.calls + calls,
            before.forward + forward,
            before.backward + backward,
            before.ops + ops,
        )
    yield from merged.items()


def _typical(lines: Sequence[_Line]) -> _Line:
    """Of a line that every window saw the median, which one disturbed window does not move; else the mean."""
    of = _mean if any(line is _ABSENT for line in lines) or len(lines) < 3 else median
    return _Line(
        next(line.function for line in lines if line is not _ABSENT),
        _mean([line.calls for line in lines]),
        of([line.forward for line in lines]),
        of([line.backward for line in lines]),
        _mean([line.ops for line in lines]),
    )


def _known_share(window: Mapping[str, Any], place: int, name: str) -> float:
    """Of a window's phase, what is known by line: nodes made before the window began are of no line."""
    whole = float(window.get(name, 0.0))
    return min(1.0, sum(float(line[place]) for line in window.get("lines", ())) / whole) if whole else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# Lists that grow from step to step, as the last window saw them, and where something is appended to them.


_ADDING = ("append", "appendleft", "extend", "insert")


def find_holders(run: StoredRun, ranks: Sequence[Rank]) -> tuple[Holder, ...]:
    """Those of the first rank that has a window. A window tells of growth since the one before."""
    for rank in ranks:
        windows = told(rank.recording, "window")
        if windows:
            holders = windows[-1].get("holders", ())
            return tuple(_holder(run, value) for value in holders if value.get("element") in ("tensor", "array"))
    return ()


def _holder(run: StoredRun, value: dict[str, Any]) -> Holder:
    name, file = str(value["name"]), str(value["file"])
    line = _find_line(whole_file(run, file), name)
    return Holder(
        name=name,
        function=str(value.get("function", "")),
        location=None if line is None else Location(file, line),
        elements_per_step=float(value["per_step"]),
        element=value["element"],
        has_graph=bool(value.get("has_graph")),
        bytes=float(value.get("bytes", 0)),
    )


def _find_line(text: str, name: str) -> int | None:
    """The only place, or the first, that adds to a variable or attribute of this name."""
    last = name.split("[")[0].rsplit(".", 1)[-1]
    found = [line for node in ast.walk(parse_text(text).tree) if (line := _line_that_adds(node, last)) is not None]
    return min(found, default=None)


def _line_that_adds(node: ast.AST, name: str) -> int | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING:
        return node.lineno if _last_name(node.func.value) == name else None
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return node.lineno if _last_name(node.target) == name else None
    return None


def _last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
