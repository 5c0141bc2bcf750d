"""The training's DataLoader delivers one sample per step.

What it is: the training's DataLoader has a hard-coded `batch_size=1`, or none, which means 1.

Why the GPU idles: a step launches as many kernels for one sample as for thirty, and each of them is too small to fill
the device. What the host does for a step (launching, the optimizer, logging) is paid for each sample.

How it shows in source: a training DataLoader with `batch_size=1`, or without one, and without `collate_fn`,
`batch_sampler` and `sampler`, over a dataset of whole samples; not where the step takes the one element out
(`batch[0]`, `.squeeze(0)`), which are then batches already, nor in graphs, scenes and reinforcement learning.

The fix: a batch as large as memory allows, from a setting. Where samples differ in size, group those of like size or
pad them. The learning rate has to follow. Accumulating gradients instead changes nothing about the launches.

What to expect: samples a second rise nearly with the batch until the device is busy.

When it is fine: one sample fills the device (large volumes, long sequences), or the method is defined for one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.problems.found import FoundInSource
from flatout.records.message import message
from flatout.source.code import Code
from flatout.source.loops import find_loops_over
from flatout.source.syntax.nodes import called_name, has_star_arguments, is_call
from flatout.source.training.loaders import Dataset, Loader, is_in_memory, loader_argument

CODE = "IN116"
# One sample is a whole world in these.
_WORLDS = re.compile(
    r"torch_geometric|\bdgl\b|\bgym\b|gymnasium|graph|nerf|gaussian|scene|episode|meta.?learn|test.time", re.I
)


def in_source(code: Code) -> Iterator[FoundInSource]:
    told: set[int] = set()
    of = {id(loader): dataset for dataset in code.datasets if dataset.is_certain for loader in dataset.loaders}
    for made in code.loaders:
        module = made.function.module
        if id(module) in told or not made.trains or not _is_one(made) or is_in_memory(made, code.project):
            continue
        dataset = of.get(id(made))
        if dataset is None or _hands_out_batches(dataset, code) or next(find_loops_over(made, code), None) is None:
            continue
        if _takes_it_apart(made, code):
            continue
        if _WORLDS.search(module.text) or _WORLDS.search(dataset.cls.module.text):
            continue
        told.add(id(module))
        given = loader_argument(made, "batch_size")
        setting = message("in116.default" if given is None else "in116.written")
        yield FoundInSource(
            severity="low",
            place=module.place(made.call),
            cause=message("in116.source_cause", setting=setting),
            change=message("in116.source_change"),
        )


def _is_one(made: Loader) -> bool:
    """In the call itself: a setting that is 1 is somebody's choice."""
    others = (loader_argument(made, name) for name in ("batch_sampler", "collate_fn", "sampler"))
    if has_star_arguments(made.call) or any(other is not None for other in others):
        return False
    given = loader_argument(made, "batch_size")
    return given is None or (isinstance(given, ast.Constant) and given.value == 1)


def _hands_out_batches(dataset: Dataset, code: Code) -> bool:
    """A stream, or a dataset that puts several samples together itself."""
    if code.project.methods(dataset.cls, "__iter__"):
        return True
    names = {called_name(call) for function in dataset.functions for call in function.calls}
    return bool(names & {"stack", "cat", "concatenate", "pad_sequence"}) or "batch" in dataset.cls.name.lower()


def _takes_it_apart(made: Loader, code: Code) -> bool:
    """`batch[0]`, `.squeeze(0)` in the step."""
    for region, point in code.each_step():
        if not code.training.are_together(region.module, made.function.module):
            continue
        node = point.node
        if is_call(node, "squeeze", "squeeze_", "flatten"):
            return True
        if isinstance(node, ast.Subscript) and getattr(node.slice, "value", None) == 0:
            return True
    return False
