"""A data timer starts after the batch has arrived, so it does not measure the wait.

What it is: a figure called data time is taken within the body of `for batch in loader:`. By then the loop has already
waited for the batch: what is measured is a copy, or nothing at all.

Why the GPU idles: it waits for batches, and the one figure that should show it reads a tenth of a millisecond, so the
search goes on elsewhere.

How it shows in source: in a training loop over a loader the clock is read twice, the difference goes to a variable or
meter named after data or loading, and nothing between the two fetches a batch.

The fix: start before the batch is requested. `end = time.perf_counter()` before the loop and again as the last line of
its body; `data_time.update(time.perf_counter() - end)` as its first.

What to expect: nothing gets faster; the figure is right.

When it is fine: the time of the copy is what is wanted. Then name it so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.problems.found import FoundInSource
from flatout.problems.measuring.clocks import find_intervals
from flatout.records.message import message
from flatout.records.source import Related
from flatout.source.code import Code
from flatout.source.syntax.nodes import called_name, is_call, last_name

CODE = "MS001"

_DATA = re.compile(r"data|load(ing|er)?(?![a-z])|fetch|batch_?(wait|load)|input_?(time|wait)|(^|_)io(_|$)", re.I)
# Says itself that it is about something else.
_OTHER = re.compile(
    r"transfer|cop(y|ied)|h2d|to_?(gpu|device|cuda)|pre_?proc|prepa?re?|augment|ckpt|checkpoint|model|save|metadata|transform"
    r"|collat|move|update_data|forward|epoch",
    re.I,
)
_FETCHES = re.compile(r"next|fetch|get|load|read|sample|draw|collate|recv|batch|open|dequeue|pop", re.I)
_COUNTED = {"range", "count", "trange", "arange"}
_COMPUTES = {"backward", "step", "zero_grad"}


def in_source(code: Code) -> Iterator[FoundInSource]:
    for region in code.training.regions:
        # `for batch in loader`, not `for step in range(n)`: there the body fetches.
        if not isinstance(region.loop, ast.For | ast.AsyncFor) or is_call(region.loop.iter, *_COUNTED):
            continue
        for interval in find_intervals(region):
            if not _DATA.search(interval.name) or _OTHER.search(interval.name):
                continue
            if not any(_fetches(node) or is_call(node, *_COMPUTES) for node in interval.inside):
                begun = Related(region.module.place(interval.begins), message("related.clock_starts_with_batch"))
                yield FoundInSource(
                    place=region.module.place(interval.ends),
                    cause=message("ms001.source_cause", name=interval.name.split(" ")[-1]),
                    change=message("ms001.source_change"),
                    related=(begun,),
                )
                break


def _fetches(node: ast.AST) -> bool:
    # What a loop goes over, or what an element is taken of. A batch's own parts, `data[0]`, are there already.
    over = node.value if isinstance(node, ast.Subscript) else getattr(node, "iter", None)
    name = last_name(over) if isinstance(node, ast.Subscript | ast.For | ast.AsyncFor) and over is not None else ""
    if re.search(r"set$|loader$", name) and _DATA.search(name):
        return True
    return isinstance(node, ast.Call) and bool(_FETCHES.search(called_name(node)))
