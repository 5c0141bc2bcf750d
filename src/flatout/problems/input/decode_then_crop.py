"""A sample is computed at full size, and most of it is then cropped away.

What it is: the dataset converts, resizes or voxelises a whole frame, volume or recording, and then crops a small part
of it. The work on what is cropped away is wasted.

Why the GPU idles: the workers spend time on pixels nobody will see, and the training waits.

How it shows in a run: the training waits for its batches, or for processors that the workers have, and a large part of
a worker's time goes to lines of your code whose result is then cropped, along several axes, or along one of an array
that was read from a file.

How it shows in source: in the code that makes a training's samples, an array that is converted or unpacked as a whole
(`.astype(np.float32)`, `/ 255`, `np.unpackbits`, a colour space) and then cropped by slices at a computed place.

The fix: draw the crop first, read only that part (`np.load(path, mmap_mode="r")[..., top:top + size, left:left +
size]`, `np.memmap`, `np.fromfile` with an offset), and convert, resize or filter that part; with a margin, where a
filter looks at neighbours. A JPEG has to be decoded as a whole (`Image.draft` decodes it smaller), but not converted as
one.

What to expect: the loader saves that work, less the part that is kept.

When it is fine: the whole is needed (a mean or a spectrum of all of it), or several crops are taken of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from flatout.model.edits import Edits
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.problems.hot_lines import place_name
from flatout.problems.input.crops import Cropped, find_crops
from flatout.problems.input.loading import Feed, cheaper_batches, sample_bound_feed, sample_lines
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import LineCost, Location
from flatout.source.code import Code
from flatout.source.syntax.module import Module
from flatout.source.training.loaders import Dataset

CODE = "IN113"
# Of a sample's time, in lines whose result is cropped.
_LARGE_PART = 0.3
# More than this is kept: cropping first would save little.
_MOST_KEPT = 0.6


@dataclass(frozen=True, slots=True)
class _Wasted:
    cropped: Cropped
    lines: tuple[LineCost, ...]

    @property
    def ms(self) -> float:
        return sum(line.ms for line in self.lines)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    feed = sample_bound_feed(run)
    wasted = _most_wasted(run) if feed is not None else None
    if feed is None or wasted is None or wasted.ms < _LARGE_PART * feed.sample_ms:
        return
    kept, dearest = wasted.cropped.kept, wasted.lines[0]
    if kept is not None and kept > _MOST_KEPT:
        return
    crop_at, sample_ms = place_name(wasted.cropped.location), feed.sample_ms
    cause = message("in113.cause", wasted_ms=wasted.ms, sample_ms=sample_ms, place=crop_at)
    yield FoundInRun(
        location=dearest.location,
        evidence={
            "before_the_crop_ms_per_sample": round(wasted.ms, 3),
            "sample_ms": round(sample_ms, 3),
            "crop_at": crop_at,
            "kept_share": "not known" if kept is None else round(kept, 3),
            "num_workers": feed.use.workers,
        },
        cause=cause if kept is None else message("in113.cause_kept", cause=cause, kept_share=kept),
        change=message("in113.change", place=place_name(dearest.location)),
        edits=_edits(feed, wasted),
    )


def _most_wasted(run: Evidence) -> _Wasted | None:
    lines = sample_lines(run)
    seen = {line.location.file for line in lines}
    found = []
    for cropped in find_crops({file: text for file, text in run.files.items() if file in seen}):
        dear = tuple(line for line in lines if (line.location.file, line.location.line) in cropped.making)
        if dear:
            found.append(_Wasted(cropped, dear))
    return max(found, key=lambda wasted: wasted.ms, default=None)


def _edits(feed: Feed, wasted: _Wasted) -> Edits:
    part, kept = wasted.ms / feed.sample_ms, wasted.cropped.kept
    # Where the text does not say how much is kept, all of it may go, or no more than makes this a finding.
    shares = (_MOST_KEPT, 0.0, 0.0) if kept is None else (min(1.0, 1.5 * kept), kept, kept)
    left = [feed.work_ms * (1 - part * (1 - share)) for share in shares]
    return replace(cheaper_batches(feed.work_ms, left), is_most=kept is None)


# Work on every element, which the part that is kept could have had alone.
_ON_EACH = re.compile(
    r"\.astype\(|\.float\(\)|/ ?255\b|unpackbits|np\.repeat\(|cvtColor|np\.(log|sqrt|power|exp|log1p)\("
)
# Pictures are decoded as a whole anyway, and what their box hangs on cannot be told.
_OF_A_PICTURE = re.compile(r"(?<!\bself)\.crop\(")
_CROPS_MAYBE = re.compile(r":\s*\w+\s*\+|[cC]rop")


def in_source(code: Code) -> Iterator[FoundInSource]:
    seen: set[Location] = set()
    for dataset in code.datasets:
        modules = {f.module.shown: f.module for f in dataset.functions if _CROPS_MAYBE.search(f.module.text)}
        for cropped in find_crops({name: module.text for name, module in modules.items()}) if dataset.trains else ():
            module = modules[cropped.location.file]
            work = _work_before(cropped, modules)
            too_much = cropped.kept is not None and cropped.kept > _MOST_KEPT
            if work is None or too_much or cropped.location in seen or not _is_in(cropped.location, dataset):
                continue
            seen.add(cropped.location)
            cause = message("in113.source_cause", line=work)
            if cropped.kept is not None:
                cause = message("in113.source_cause_kept", cause=cause, kept_share=cropped.kept)
            yield FoundInSource(
                severity="low",
                place=module.at(cropped.location.line),
                cause=cause,
                change=message("in113.source_change", line=work),
            )
            break


def _work_before(cropped: Cropped, modules: Mapping[str, Module]) -> int | None:
    """The first line of the same file that works on each element of what is then cropped."""
    module = modules[cropped.location.file]
    if module.cells is not None or _OF_A_PICTURE.search(module.lines[cropped.location.line - 1]):
        return None
    for file, line in sorted(cropped.making):
        if file == module.shown and line != cropped.location.line and _ON_EACH.search(module.lines[line - 1]):
            return line
    return None


def _is_in(location: Location, dataset: Dataset) -> bool:
    """In a function that makes its samples."""
    return any(
        function.module.shown == location.file
        and function.definition is not None
        and function.definition.lineno <= location.line <= (function.definition.end_lineno or 0)
        for function in dataset.functions
    )
