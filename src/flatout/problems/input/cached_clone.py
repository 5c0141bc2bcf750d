"""The dataset returns a copy of a sample that it holds in memory.

What it is: `__getitem__`, or the cache it asks, returns `self.cache[i].clone()` or `copy.deepcopy(self.data[i])`: a
full copy of a sample that nothing is going to modify.

Why the GPU idles: collating copies the samples into one tensor anyway. Each is copied twice, at the speed of memory,
and `deepcopy` goes through every object in Python besides.

How it shows in a run: a wait for data in each step, and such a line, in a worker or in the training process, at which a
good part of making a sample goes.

How it shows in source: a `.clone()` of, or a `deepcopy` around, an element of what the dataset holds, in what makes its
samples, where the copy is returned without being written to or handed to anybody first.

The fix: return the element itself, `return self.cache[i]`. Where an augmentation changes samples in place, copy only
what it changes, or let it make a new tensor: `x = x.flip(-1)`.

What to expect: a sample costs one copy less; of large ones (volumes, clips, event frames) that is most of their cost.

When it is fine: the samples are small, or a collate function of your own hands out the very tensors of the cache and
the training writes to them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.model.edits import BatchCosts, Edits, LessHost
from flatout.problems.found import WORTH, FoundInRun, FoundInSource, loader_is_here
from flatout.problems.hot_lines import lines_in
from flatout.problems.input.loading import sample_lines, starving_feed
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import Location
from flatout.source.code import Code
from flatout.source.syntax.module import Function, own_nodes, parse_text
from flatout.source.syntax.nodes import called_name, dotted_name, is_call, root_name, short_text

CODE = "IN115"
# Lists of facts about samples: small, and copied so that they may be added to.
_FACTS = re.compile(r"info|label|ann|record|meta|json|index|dict|roidb|entries|rows|item_list|cfg|config|db$", re.I)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    feed = starving_feed(run)
    if feed is None:
        return
    lines = sample_lines(run)
    for location, copied in _copies_at(run, [line.location for line in lines]):
        share = sum(line.share for line in lines if line.location == location)
        # A deep copy makes so many objects that Python goes through them all the more often.
        collecting_ms = sum(line.ms for line in lines_in(run, "gc") if line.location == location)
        copy_ms = share * feed.work_ms
        if copy_ms < WORTH * run.step_ms:
            continue
        yield FoundInRun(
            location=location,
            evidence={
                "copy_ms_per_step": round(copy_ms, 2),
                "copy_share_of_sample": round(share, 3),
                "gc_ms_per_step": round(collecting_ms, 2),
                "num_workers": feed.use.workers,
            },
            cause=message("in115.cause", code=copied, copy_ms=copy_ms, share=share),
            change=message("in115.source_change"),
            edits=Edits((BatchCosts(feed.work_ms - copy_ms, feed.work_ms), LessHost(collecting_ms, "gc"))),
        )


def _copies_at(run: Evidence, places: list[Location]) -> Iterator[tuple[Location, str]]:
    """Lines of these that hand out a copy of what is held, the first ones first, and what they copy.

    Lists of facts about samples as well: their copies are small only as long as the clock does not say otherwise.
    """
    for place in dict.fromkeys(places):
        for function in parse_text(run.files.get(place.file, "")).functions:
            for copied, call in _copies(function):
                is_here = call.lineno <= place.line <= (call.end_lineno or call.lineno)
                if is_here and _is_returned(call, function) and _is_held(copied, function, with_facts=True):
                    yield place, short_text(copied, 40)


def in_source(code: Code) -> Iterator[FoundInSource]:
    seen: set[int] = set()
    for dataset in code.datasets:
        for function in dataset.functions if dataset.trains else ():
            for copied, call in _copies(function):
                if id(call) in seen or not _is_returned(call, function) or not _is_held(copied, function):
                    continue
                seen.add(id(call))
                yield FoundInSource(
                    severity="low",
                    place=function.module.place(call),
                    cause=message("in115.source_cause", code=short_text(copied, 40)),
                    change=message("in115.source_change"),
                    related=loader_is_here(dataset.trains[0]),
                )


def _copies(function: Function) -> Iterator[tuple[ast.expr, ast.Call]]:
    """What is copied, and the call that does it."""
    for call in function.calls:
        name = called_name(call)
        if name == "clone" and isinstance(call.func, ast.Attribute) and not call.args:
            yield call.func.value, call
        elif name == "deepcopy" and call.args:
            yield call.args[0], call


def _is_held(node: ast.expr, function: Function, with_facts: bool = False) -> bool:
    """An element of a list, dict or tensor of the dataset, or of a cache that it keeps."""
    if isinstance(node, ast.Name):
        values = function.bindings.get(node.id, [])
        return len(values) == 1 and _is_held(values[0], function, with_facts)
    if is_call(node, "get") and isinstance(node.func, ast.Attribute):
        return _is_of_self(node.func.value, with_facts)
    if not isinstance(node, ast.Subscript) or isinstance(node.slice, ast.Constant):
        return False
    return _is_of_self(node.value, with_facts)


def _is_of_self(node: ast.expr, with_facts: bool) -> bool:
    name = dotted_name(node)
    return name.startswith("self.") and (with_facts or not _FACTS.search(name.split(".")[-1]))


def _is_returned(call: ast.Call, function: Function) -> bool:
    """Handed out as it is: returned itself, or under a name that nothing else is done with but picking from it."""
    nodes = list(own_nodes(function))
    returned = [node.value for node in nodes if isinstance(node, ast.Return | ast.Yield) and node.value is not None]
    handed_out = [part for value in returned for part in _parts_of_return(value)]
    if any(part is call for part in handed_out):
        return True
    names = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and node.value is call
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    if len(names) != 1:
        return False
    name = names.pop()
    uses = [node for node in nodes if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)]
    given = [part for part in handed_out if isinstance(part, ast.Name) and part.id == name]
    is_bound_again = len(function.bindings.get(name, ())) > 1 or any(
        isinstance(node, ast.AugAssign) and root_name(node.target) == name for node in nodes
    )
    return bool(given) and len(uses) == len(given) and not is_bound_again


def _parts_of_return(value: ast.expr) -> Iterator[ast.expr]:
    """What a return hands out, through tuples, lists and dicts."""
    if isinstance(value, ast.Tuple | ast.List | ast.Dict):
        for element in value.values if isinstance(value, ast.Dict) else value.elts:
            yield from _parts_of_return(element)
    else:
        yield value
