"""Every worker makes all samples, and hands out its own part of them.

What it is: an `IterableDataset` that several workers share reads, decodes or parses each sample and only then asks
whose it is: `for n, sample in enumerate(map(self.decode, records)): if n % workers == worker: yield sample`, or
`islice(samples, worker, None, workers)` over samples that are made already.

Why the GPU idles: with n workers n - 1 of n samples are made in vain, so more workers give no more batches.

How it shows in a run: the training loader has an iterable dataset and several workers, these spend their time in what
is called before a test with a remainder, and the text shows that the test lets one in n through.

The fix: ask first, make then: `if n % workers == worker: yield decode(record)`. Best of all give each worker files of
its own: `files[worker::workers]`.

What to expect: making samples takes one n-th of what it does. Reading a file in order to skip most of it stays.

When it is fine: what is done before the test is cheap beside the rest.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from flatout.model.measured import batch_ms
from flatout.problems.found import WORTH_GENERAL, FoundInRun
from flatout.problems.hot_lines import function_spans, place_name
from flatout.problems.input.loading import cheaper_batches
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import Location
from flatout.source.syntax.module import parse_text
from flatout.source.syntax.nodes import called_name, last_name, names_in

CODE = "IN119"
# Of the time before the test, what is spared: something may be needed to know whose a sample is.
_WORST, _LIKELY = 0.6, 0.9


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use = run.training_loader
    now_ms = None if use is None or use.workers < 2 else batch_ms(run, use)
    if use is None or not now_ms:
        return
    for file, text in run.files.items():
        for test, before in shared_out_late(text):
            share = sum(
                line.share
                for line in run.worker_lines
                if line.location.file == file and any(line.location.line in lines for lines in before)
            )
            if share < WORTH_GENERAL:
                continue
            place = Location(file, test)
            spared = share * (1 - 1 / use.workers)
            yield FoundInRun(
                location=place,
                evidence={"workers": use.workers, "share_before": round(share, 3), "batch_ms": round(now_ms, 2)},
                cause=message("in119.cause", line=place_name(place), workers=use.workers, share=share),
                change=message("in119.change"),
                edits=cheaper_batches(now_ms, [now_ms * (1 - part * spared) for part in (_WORST, _LIKELY, 1.0)]),
            )


@lru_cache(maxsize=64)
def shared_out_late(text: str) -> tuple[tuple[int, tuple[range, ...]], ...]:
    """Lines that share samples out among workers, with those of the file that run for each sample before it."""
    module = parse_text(text)
    if not any(isinstance(node, ast.Call) and called_name(node) == "get_worker_info" for node in ast.walk(module.tree)):
        return ()
    functions = {made.name: made for made in module.functions if made.definition is not None}
    asking = {name for name, made in functions.items() if any(map(_is_remainder, ast.walk(made.node)))}
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.For):
            at = _place_of_test(node, asking)
            if at is None:
                continue
            line, over, statements = node.body[at].lineno, node.iter, node.body[:at]
        elif isinstance(node, ast.Call) and called_name(node) == "islice" and len(node.args) == 4:
            line, over, statements = node.lineno, node.args[0], []
        else:
            continue
        called = {name for part in (over, *statements) for name in _called_in(part)} - asking
        before = _reach(called, {name: {called_name(call) for call in made.calls} for name, made in functions.items()})
        lines = [span for name in before for span in function_spans(text, name)]
        lines += [range(part.lineno, (part.end_lineno or part.lineno) + 1) for part in statements]
        if lines:
            found.append((line, tuple(lines)))
    return tuple(found)


def _place_of_test(loop: ast.For, asking: set[str]) -> int | None:
    """Where the body asks `if n % workers == worker: yield ...`, or `!= worker: continue`; n is counted by the loop.

    None where it asks before, if perhaps only by a setting.
    """
    counted = set(names_in(loop.target))
    for place, part in enumerate(loop.body):
        if not isinstance(part, ast.If):
            continue
        nodes = list(ast.walk(part.test))
        asks = any(_is_remainder(node) and names_in(node) & counted for node in nodes) or any(
            isinstance(node, ast.Call) and called_name(node) in asking and names_in(node) & counted for node in nodes
        )
        if not asks:
            continue
        hands_out = any(isinstance(node, ast.Yield | ast.Continue) for inner in part.body for node in ast.walk(inner))
        return place if hands_out and not isinstance(part.test, ast.BoolOp) else None
    return None


def _is_remainder(node: ast.AST) -> bool:
    """By a number that is not written there."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and not isinstance(node.right, ast.Constant)


def _called_in(part: ast.AST) -> set[str]:
    """Names that are called there, or handed to `map` to be called."""
    called = [node for node in ast.walk(part) if isinstance(node, ast.Call)]
    mapped = {last_name(call.args[0]) for call in called if called_name(call) == "map" and call.args}
    return {called_name(call) for call in called} | mapped


def _reach(names: set[str], calls: dict[str, set[str]]) -> set[str]:
    """Functions of the file among these, with those that they call in turn."""
    waiting, reached = [name for name in names if name in calls], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [inner for inner in calls[name] if inner in calls]
    return reached
