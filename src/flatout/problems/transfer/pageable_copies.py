"""Batches are copied to the device from pageable memory.

What it is: the loader has `pin_memory=False`, or the batch is built by hand, and `.to(device)` copies it.

Why the GPU idles: the driver first copies pageable memory into a pinned buffer of its own, piece by piece, and the call
returns only when the device has reached that point of its queue. Until then nothing is launched.

How it shows in a run: time in `h2d` at copies whose source is not pinned, and a device with an empty queue.

How it shows in source: a DataLoader of a training without `pin_memory=True`, while the step copies its batches to a
device.

The fix: `DataLoader(..., pin_memory=True)` and `batch.to(device, non_blocking=True)`: both, as either alone still
blocks. From outside `loader.pin` does the one and `transfer.async` the other.

What to expect: the host continues at once; the bytes still take their time over the bus, in order with the kernels.

When it is fine: the device is busy anyway, or the batch is small.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.found import FoundInRun, FoundInSource, setting_words, where_written
from flatout.problems.transfer.copies import (
    blocked_ms,
    find_copies,
    is_small,
    list_sites,
    mib_per_step,
    pinned_part,
    training_copies,
    unblock,
)
from flatout.records.evidence import Evidence
from flatout.records.message import message, verbatim
from flatout.records.source import Edit, Fix, Related
from flatout.source.code import Code
from flatout.source.flow.values import replace_value
from flatout.source.syntax.edits import add_keyword
from flatout.source.syntax.nodes import has_star_arguments
from flatout.source.training.loaders import Loader, Setting, accepts_setting, has_device_samples, loader_setting

CODE = "TR201"
REMEDY = "loader.pin"
COMES_FROM = ("TR203",)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    sites = [site for site in training_copies(run) if site.pinned_share < 0.5 and not is_small(site)]
    use = run.training_loader
    if not run.on_gpu or not sites or (use is not None and use.settings.get("pin_memory") and pinned_part(sites) < 0.1):
        return  # a loader that pins, and to no effect, is another problem
    held_ms = blocked_ms(run, sites)
    mebibytes = mib_per_step(sites)
    yield FoundInRun(
        location=sites[0].location,
        evidence={
            "h2d_ms_per_step": round(held_ms, 2),
            "mib_per_step": round(mebibytes, 2),
            "pinned_share": round(pinned_part(sites), 2),
            "lines": list_sites(sites),
        },
        cause=message("tr201.cause", mib=mebibytes, blocked_ms=held_ms, step_ms=run.step_ms),
        change=message("tr201.change"),
        edits=unblock(run, sites, to_pin=True),
    )


def in_source(code: Code) -> Iterator[FoundInSource]:
    all_copies = find_copies(code)
    for made in code.loaders:
        module = made.function.module
        copies = [copy for copy in all_copies if code.training.are_together(copy.region.module, module)]
        pins = loader_setting(made, "pin_memory", code.values)
        # Who copies may be in another file than who loads; without any copy the batches stay where they are.
        if not made.trains or not pins.is_off() or not copies or has_device_samples(made, code.project):
            continue  # what is on a device already cannot be pinned
        value = pins.value
        written, related = where_written(value, made.place, "related.reaches_loader")
        first = copies[0].region.module.place(copies[0].call)
        yield FoundInSource(
            place=value.place if value is not None and value.is_direct else written,
            cause=message("tr201.source_cause", setting=setting_words("pin_memory", value)),
            change=message("tr201.source_change"),
            loader_setting="pin_memory",
            related=(*related, Related(first, message("related.copies"))),
            fix=_fix(made, pins, code),
        )


def _fix(made: Loader, pins: Setting, code: Code) -> Fix | None:
    value = pins.value
    if value is None:
        # A keyword that arrives twice is an error.
        refused = has_star_arguments(made.call) or not accepts_setting(made, "pin_memory")
        edit = None if refused else add_keyword(made.function.module, made.call, "pin_memory=True")
    elif value.is_direct:
        edit = Edit(value.place, "True")
    else:
        edit = replace_value(code.project, value, True, "pin")
    # Batches lie in other memory; what is in them stays the same.
    return None if edit is None else Fix(verbatim("pin_memory=True"), (edit,), is_safe=True)
