"""The batches are pinned, but copying them still blocks the host.

What it is: the loader pins its batches, but they are copied with `.to(device)` and not `.to(device,
non_blocking=True)`.

Why the GPU idles: the call waits until the device has finished everything queued before it and the copy itself. Then
the queue is empty until the host has launched more.

How it shows in a run: copies of pinned memory, none of them non-blocking, and their time in `h2d`.

How it shows in source: `.to(device)` or `.cuda()` of a batch in the step, without `non_blocking=True`; of the batch as
the loader returned it: what the step creates, converts or slices is in pageable memory.

The fix: `x = x.to(device, non_blocking=True)`. It is safe: kernels that use `x` come after the copy in the same queue.
From outside `transfer.async` does that, and `transfer.prefetch` copies the next batch while this is computed.

What to expect: the host continues at once and stays ahead of the device.

When it is fine: the device is busy anyway, or something else waits for it right before the copy.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.problems.found import FoundInRun, FoundInSource, step_of
from flatout.problems.transfer.copies import (
    BatchCopy,
    blocked_ms,
    find_copies,
    list_sites,
    may_be_no_tensor,
    mib_per_step,
    takes_no_options,
    training_copies,
    unblock,
    unblocked_part,
)
from flatout.records.evidence import Evidence
from flatout.records.message import message, verbatim
from flatout.records.source import Edit, Fix
from flatout.source.code import Code, call_path
from flatout.source.syntax.edits import add_keyword, replace_node
from flatout.source.syntax.nodes import argument, has_star_arguments, short_text
from flatout.source.training.loaders import loader_setting

CODE = "TR204"
REMEDY = "transfer.async"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    sites = [site for site in training_copies(run) if site.pinned_share >= 0.5 and site.non_blocking_share < 0.5]
    if not run.on_gpu or not sites:
        return
    held_ms = blocked_ms(run, sites)
    yield FoundInRun(
        location=sites[0].location,
        evidence={
            "h2d_ms_per_step": round(held_ms, 2),
            "mib_per_step": round(mib_per_step(sites), 2),
            "non_blocking_share": round(unblocked_part(sites), 2),
            "lines": list_sites(sites),
        },
        cause=message("tr204.cause", blocked_ms=held_ms, step_ms=run.step_ms),
        change=message("tr204.change", lines=list_sites(sites)),
        edits=unblock(run, sites, to_pin=False),
    )


def in_source(code: Code) -> Iterator[FoundInSource]:
    # What the step makes itself is in pageable memory: not to block is of no use there.
    copies = [copy for copy in find_copies(code) if not copy.is_non_blocking and copy.is_unchanged_since_load]
    pinning = [
        made for made in code.loaders if made.trains and not loader_setting(made, "pin_memory", code.values).is_off()
    ]
    by_line: dict[tuple[str, int | None, int], list[BatchCopy]] = {}
    for copy in copies:
        place = copy.region.module.place(copy.call)
        by_line.setdefault((place.file, place.cell, place.line), []).append(copy)
    for here in by_line.values():
        copy, edits = here[0], [_edit(other, code) for other in here]
        # The device gets the same batch in the same order; only the host no longer waits for it.
        is_safe = not any(may_be_no_tensor(other) for other in here)
        known = tuple(edit for edit in edits if edit is not None)
        pinned = any(code.training.are_together(made.function.module, copy.region.module) for made in pinning)
        yield FoundInSource(
            title=None if pinned else message("tr204.title_not_pinned"),
            severity="medium" if pinned else "low",
            place=copy.region.module.place(copy.call),
            cause=message("tr204.source_cause", code=short_text(copy.call), step=step_of(copy.region)),
            change=verbatim("non_blocking=True") if pinned else message("tr204.source_change"),
            loader_setting=None if pinned else "pin_memory",
            related=call_path(copy.region),
            fix=Fix(verbatim("non_blocking=True"), known, is_safe) if len(known) == len(here) else None,
        )


def _edit(copy: BatchCopy, code: Code) -> Edit | None:
    call, module = copy.call, copy.region.module
    given = argument(call, "non_blocking")
    given = given or next((arg for arg in call.args[1:] if isinstance(arg, ast.Constant)), None)
    if has_star_arguments(call) or takes_no_options(copy, code):
        return None
    if given is None:
        return add_keyword(module, call, "non_blocking=True")
    return replace_node(module, given, "True") if isinstance(given, ast.Constant) and given.value is False else None
