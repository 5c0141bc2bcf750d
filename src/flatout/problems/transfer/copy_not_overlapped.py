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
from collections.abc import Iterator, Sequence

from flatout.problems.cases import HERE, Case, SourceCase, on_gpu, run
from flatout.problems.found import FoundInRun, FoundInSource, step_of
from flatout.problems.transfer.batch_copies import BatchCopy, find_copies, may_be_no_tensor, takes_no_options
from flatout.problems.transfer.copies import blocked_ms, gain_unblocked, list_sites, training_copies, unblocked_part
from flatout.records.evidence import Evidence
from flatout.records.message import message, verbatim
from flatout.records.report import CopySite
from flatout.records.source import Edit, Fix
from flatout.source.code import Code, call_path
from flatout.source.syntax.edits import add_keyword, replace_node
from flatout.source.syntax.nodes import has_star_arguments, short_text
from flatout.source.training.loaders import loader_setting

CODE = "TR204"
REMEDY = "transfer.async"
Line = tuple[str, int | None, int]


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    sites = [site for site in training_copies(run) if site.pinned_share >= 0.5 and site.non_blocking_share < 0.5]
    if not run.on_gpu or not sites:
        return
    gain = gain_unblocked(run, sites, to_pin=False)
    if gain is None:
        return
    held_ms = blocked_ms(run, sites)
    yield FoundInRun(
        location=sites[0].location,
        evidence={
            "h2d_ms_per_step": round(held_ms, 2),
            "mib_per_step": round(sum(site.bytes_per_step for site in sites) / 2**20, 2),
            "non_blocking_share": round(unblocked_part(sites), 2),
            "lines": list_sites(run, sites),
        },
        cause=message("tr204.cause", blocked_ms=held_ms, step_ms=run.step_ms),
        change=message("tr204.change", lines=list_sites(run, sites)),
        predicted_gain=gain,
    )


_MS = {"data": 1.0, "h2d": 20.0, "forward": 30.0, "backward": 40.0, "optimizer": 8.0, "other": 1.0}
_GPU = on_gpu(util_mean=72.0, drained_share=0.4)
_BLOCKING = CopySite(HERE, "train", 2.0, 20.0, 38.0 * 2**20, 1.0, 0.0)
CASES = (
    Case("finds it when the copy waits for the step before", run(gpu=_GPU, ms=_MS, copies=(_BLOCKING,)), found=True),
    Case(
        "quiet when the copy does not block",
        run(gpu=_GPU, ms={**_MS, "h2d": 0.1}, copies=(CopySite(HERE, "train", 2.0, 0.1, 38.0 * 2**20, 1.0, 1.0),)),
        found=False,
    ),
    Case(
        "quiet when the device is busy all the same",
        run(gpu=on_gpu(drained_share=0.0), ms=_MS, copies=(_BLOCKING,)),
        found=False,
    ),
)


def in_source(code: Code) -> Iterator[FoundInSource]:
    # What the step makes itself is in pageable memory: not to block is of no use there.
    copies = [copy for copy in find_copies(code) if not copy.is_non_blocking and copy.is_unchanged_since_load]
    pinning = [
        made for made in code.loaders if made.trains and not loader_setting(made, "pin_memory", code.values).is_off()
    ]
    by_line: dict[Line, list[BatchCopy]] = {}
    for copy in copies:
        place = copy.region.module.place(copy.call)
        by_line.setdefault((place.file, place.cell, place.line), []).append(copy)
    for copy, *others in by_line.values():
        pinned = any(code.training.are_together(made.function.module, copy.region.module) for made in pinning)
        yield FoundInSource(
            title=None if pinned else message("tr204.title_not_pinned"),
            severity="medium" if pinned else "low",
            place=copy.region.module.place(copy.call),
            cause=message("tr204.source_cause", code=short_text(copy.call), step=step_of(copy.region)),
            change=verbatim("non_blocking=True") if pinned else message("tr204.source_change"),
            loader_setting=None if pinned else "pin_memory",
            related=call_path(copy.region),
            fix=_fix([copy, *others], code),
        )


def _fix(copies: Sequence[BatchCopy], code: Code) -> Fix | None:
    """The device gets the same batch in the same order; only the host no longer waits for it."""
    edits = [edit for copy in copies if (edit := _edit(copy, code)) is not None]
    is_safe = not any(may_be_no_tensor(copy, code) for copy in copies)
    return Fix(verbatim("non_blocking=True"), tuple(edits), is_safe) if len(edits) == len(copies) else None


def _edit(copy: BatchCopy, code: Code) -> Edit | None:
    call, module = copy.call, copy.region.module
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "non_blocking"), None)
    given = given or next((arg for arg in call.args[1:] if isinstance(arg, ast.Constant)), None)
    if has_star_arguments(call) or takes_no_options(copy, code):
        return None
    if given is None:
        return add_keyword(module, call, "non_blocking=True")
    return replace_node(module, given, "True") if isinstance(given, ast.Constant) and given.value is False else None


_STEP = """
loader = DataLoader(Images(), 32, num_workers=4, pin_memory=True)
for images, labels in loader:
    images = images.to(device)  # found
    labels = labels.cuda()  # found
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
"""
_IN_A_LINE = _STEP.replace(
    "    images = images.to(device)  # found\n    labels = labels.cuda()  # found\n",
    "    images, labels = images.to(device), labels.to(device, non_blocking=False)  # found\n",
)
_TUPLE = """
def move(batch, device):
    return {name: value.to(device) for name, value in batch.items()}  # found

def train(loader):
    for batch in loader:
        batch = move(batch, device)
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
"""
_OWN_BATCH = """
class Nested:
    def to(self, device):
        return Nested(self.tensors.to(device))

def train(loader):
    for samples, targets in loader:
        samples = samples.to(device)  # found
        loss = criterion(model(samples), targets)
        loss.backward()
        optimizer.step()
"""


def _changed_labels(name: str, line: str, found: bool = False) -> SourceCase:
    """The labels of a batch, changed before they are copied."""
    text = _STEP.replace("to(device)  # found", "to(device, non_blocking=True)").replace(
        "    labels = labels.cuda()", f"    {line}\n    labels = labels.cuda()"
    )
    return SourceCase(name, text if found else text.replace("  # found", ""))


SOURCE_CASES = (
    SourceCase("finds it when each tensor of the batch is moved with a wait", _STEP),
    SourceCase("finds it once when a line moves both", _IN_A_LINE),
    SourceCase("finds it in a helper that moves a batch", _TUPLE),
    SourceCase("finds it, and knows no fix, where a batch of the project's own is moved", _OWN_BATCH),
    SourceCase(
        "finds it in what is done to each part",
        "for batch in DataLoader(Images(), 32, pin_memory=True):\n"
        "    batch = tree_map(lambda one: one.to(device), batch)  # found\n"
        "    model(batch).backward()\n"
        "    optimizer.step()\n",
    ),
    _changed_labels("finds it when only the shape is another", "labels = labels.squeeze(1)", found=True),
    _changed_labels("quiet when the step made it", "labels = smooth(labels, 0.1)"),
    _changed_labels("quiet when the step converted it", "labels = labels.long()"),
    _changed_labels("quiet when the step cut it out", "labels = labels[:, 0]"),
    _changed_labels("quiet when the step computed it", "labels = labels - 1"),
    SourceCase(
        "quiet when the data were put on a device",
        "data = TensorDataset(table.to(device))\nloader = DataLoader(data, 32)\nfor x in loader:\n"
        "    x = x[0].to(device)\n    model(x).backward()\n    optimizer.step()\n",
    ),
    SourceCase(
        "quiet when the copy does not block",
        _STEP.replace("to(device)  # found", "to(device, non_blocking=True)").replace(
            "cuda()  # found", "cuda(non_blocking=True)"
        ),
    ),
    SourceCase(
        "quiet when a model is moved, or a type changed",
        "model.to(device)\n"
        + _STEP.replace("images.to(device)  # found", "images.to(torch.float16)").replace(
            "labels.cuda()  # found", "labels.long()"
        ),
    ),
    SourceCase(
        "quiet when a result of the model is moved",
        _STEP.replace("    images = images.to(device)  # found\n    labels = labels.cuda()  # found\n", "").replace(
            "model(images), labels", "model(images).to(device), labels"
        ),
    ),
)
