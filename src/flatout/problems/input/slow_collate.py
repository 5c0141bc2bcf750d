"""Collating samples into a batch takes a large part of the loading time.

What it is: the loader's `collate_fn` takes a large part of the time of a sample: loops over samples in Python, padding
by concatenation, conversions that could be done once per sample.

Why the GPU idles: a batch is collated by one process, after all its samples are loaded, and the training waits for that
too.

How it shows in a run: collating is a large part of what a sample costs, and the training waits for its batches.

How it shows in source: a `collate_fn` of the project that fills a tensor one element at a time in two nested loops, or
grows a batch sample by sample with `torch.cat` in a loop, which copies everything so far at each iteration.

The fix: let `__getitem__` return tensors of the right type and size, allocate the batch once and copy into it
(`torch.stack`, or an `empty` tensor and slices), no loop over elements.

What to expect: the loader saves nearly all of that time; the step saves the part it waited for.

When it is fine: the waits come from reading or decoding; or large tensors are stacked at memory speed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.model.edits import BatchCosts, Edits, LessHost
from flatout.problems.found import FoundInRun, FoundInSource, loader_is_here
from flatout.problems.input.loading import (
    Feed,
    find_sample_loop,
    loop_garbage_ms,
    sample_bound_feed,
    sample_lines,
)
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message
from flatout.source.code import Code
from flatout.source.loops import enclosing_loops
from flatout.source.syntax.module import Function, own_nodes
from flatout.source.syntax.nodes import bound_names, dotted_name, names_in, root_name, short_text
from flatout.source.training.loaders import loader_argument, resolve_collate

CODE = "IN107"
_LARGE_PART = 0.3
# What is left of it when it only copies.
_LEFT = 0.1
_TORCH_OWN = ("default_collate", "default_convert", "pin_memory")
# Torch's own collate copies at several times this even on a slow processor.
_SLOW_BYTES_PER_S = 1e8


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    feed = sample_bound_feed(run)
    if feed is None:
        return
    use, part = feed.use, feed.cost.collate_ms_per_sample / feed.sample_ms
    if part < _LARGE_PART or not _can_be_quicker(run, feed):
        return
    collate_ms = part * feed.work_ms
    # The dearest line of it that whoever collates was seen in.
    name = str(use.settings.get("collate_fn")).rsplit(".", 1)[-1]
    own = [line for line in sample_lines(run) if line.function == name]
    yield FoundInRun(
        location=next((line.location for line in own), use.made_at),
        evidence={
            "collate_fn": str(use.settings.get("collate_fn")),
            "collate_ms_per_step": round(collate_ms, 2),
            "collate_share_of_sample": round(part, 3),
            "data_ms_per_step": round(run.phase("data").ms, 2),
            "num_workers": use.workers,
        },
        cause=message("in107.cause", collate_fn=str(use.settings.get("collate_fn")), collate_ms=collate_ms, share=part),
        change=message("in107.change"),
        edits=_edits(run, feed, part),
    )


def _edits(run: Evidence, feed: Feed, part: float) -> Edits:
    loop = find_sample_loop(run)
    if loop is None:
        return Edits((BatchCosts(feed.work_ms * (1 - (1 - _LEFT) * part), feed.work_ms),))
    # A loop over elements or samples that is done at once, and the garbage that its iterations make.
    gc_ms = loop_garbage_ms(run, loop)
    left_ms = [(feed.work_ms * (1 - (1 - left) * part), gc_ms * (1 - left)) for left in loop.left(of_sample=True)]
    return Edits.between((BatchCosts(ms, feed.work_ms), LessHost(garbage_ms, "gc")) for ms, garbage_ms in left_ms)


def _can_be_quicker(run: Evidence, feed: Feed) -> bool:
    """A function of the user's own; or torch's, if it is far slower than copying what then goes to the device."""
    if feed.use.settings.get("collate_fn") not in _TORCH_OWN:
        return True
    copied = sum(site.bytes_per_step for site in run.report.copies)
    return 0 < copied < _SLOW_BYTES_PER_S * 1e-3 * feed.work_ms


def in_source(code: Code) -> Iterator[FoundInSource]:
    seen: set[int] = set()
    for made in code.loaders:
        given = loader_argument(made, "collate_fn") if made.trains else None
        for function in resolve_collate(given, made.function, code.project) if given is not None else ():
            if id(function) in seen:
                continue
            seen.add(id(function))
            for node, cause, change in _slow_parts(function):
                yield FoundInSource(
                    severity="low",
                    place=function.module.place(node),
                    cause=cause,
                    change=change,
                    related=loader_is_here(made),
                )
                break


def _slow_parts(function: Function) -> Iterator[tuple[ast.AST, Message, Message]]:
    for node in own_nodes(function):
        if isinstance(node, ast.Assign) and (cat := _growing_cat(node)) is not None and enclosing_loops(node, function):
            yield node, message("in107.source_cat", code=short_text(cat, 50)), message("in107.source_cat_change")
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and _is_an_element(node, function):
            cause = message("in107.source_element", code=short_text(node, 50))
            yield node, cause, message("in107.source_element_change")


def _growing_cat(node: ast.Assign) -> ast.Call | None:
    """`batch = torch.cat([batch, sample])`"""
    call, name = node.value, dotted_name(node.targets[0])
    if not name or not isinstance(call, ast.Call) or dotted_name(call.func) not in _GROWING or not call.args:
        return None
    parts = call.args[0].elts if isinstance(call.args[0], ast.List | ast.Tuple) else call.args
    return call if any(dotted_name(part) == name for part in parts) else None


def _is_an_element(node: ast.Subscript, function: Function) -> bool:
    """Picked by the variables of two loops, and of nothing that holds whole rows."""
    picked = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if isinstance(node.value, ast.Subscript):
        picked = [*picked, node.value.slice]
    if len(picked) < 2 or any(isinstance(part, ast.Slice) for part in picked):
        return False
    around = [loop for loop in enclosing_loops(node, function) if isinstance(loop, ast.For)]
    by = [loop for loop in around if bound_names(loop.target) & {n for part in picked for n in names_in(part)}]
    made = function.bindings.get(root_name(node), [])
    return len(by) > 1 and any(
        isinstance(part, ast.Call) and root_name(part) in ("torch", "np", "numpy") for part in made
    )


_GROWING = {"torch.cat", "torch.vstack", "torch.hstack", "np.concatenate", "np.append", "np.vstack", "torch.concat"}
