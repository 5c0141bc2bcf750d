"""Each sample is a small file, and opening files takes longer than reading them.

What it is: every sample, or every small batch made in advance, is a separate file of a few kilobytes. Looking up its
name, opening it, parsing its header and closing it cost the same for one kilobyte as for a hundred.

Why the GPU idles: the workers open files all the time, and the training waits for the little that is in them.

How it shows in a run: the training waits for its batches, most of a worker's time goes to the line that opens a file,
and that line reads far fewer bytes a second than a copy in memory would.

The fix: pack the samples into few large files once: one array that is memory-mapped (`np.lib.format.open_memmap`,
`np.load(path, mmap_mode="r")`), HDF5, Arrow, WebDataset shards, LMDB; files that are batches already can be made
larger, and read several at a time.

What to expect: a sample costs a copy. A tenth of the opening is left, at worst a third.

When it is fine: the samples arrive in time; or the files change while the training runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from flatout.model.edits import BatchCosts, Edits
from flatout.problems.found import FoundInRun
from flatout.problems.hot_lines import place_name, text_at
from flatout.problems.input.loading import is_storage_bound, sample_bound_feed, sample_lines
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import LineCost

CODE = "IN114"
# Calls that open and read one file of raw or pickled data. Decoders of images are none: they work on what they read.
_OPENS = re.compile(
    r"(?<![\w.])(?:np|numpy)\.(?:load|fromfile|memmap)\(|(?<![\w.])torch\.load\(|(?<![\w.])open\(|\.open\(|h5py\.File\("
    r"|\.read_bytes\(|\.read_text\(|pickle\.load\(|loadmat\(|load_file\("
)
_DECODES = re.compile(r"Image\.open|imread|zipfile|tarfile|gzip|lzma|bz2|mmap_mode|memmap")
_MOST_OF_IT = 0.5
_SMALL_BYTES = 256 * 1024
# A file of any size that is worth it is read many times faster than this.
_SLOW_BYTES_PER_S = 1e8
# Samples in one file, or in memory, are copied at this rate even on a slow processor.
_COPY_BYTES_PER_S = 1e9
# The name under which an open file is read from.
_HANDLE = re.compile(r"(?:open|File)\(.*\)\s+as\s+(\w+)|^(\w+)\s*=\s*(?:[\w.]+\.)?(?:open|File)\(")


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    feed, size = sample_bound_feed(run), run.file_bytes
    if feed is None or (feed.use.workers and is_storage_bound(run, feed.use)):
        return
    use, lines = feed.use, _reading_lines(run)
    opening_ms = sum(line.ms for line in lines)
    if not lines or size is None or size > _SMALL_BYTES or opening_ms < _MOST_OF_IT * feed.sample_ms:
        return
    # Where the loader does not batch, an item of the dataset is a batch, and so is a file.
    per_file_ms = opening_ms * (1.0 if use.batch_size is not None else max(1.0, run.samples_per_step or 1.0))
    if size / max(1e-3 * per_file_ms, 1e-9) > _SLOW_BYTES_PER_S:
        return
    # Of reading a sample its copy is left.
    copy_ms = 1e3 * size / _COPY_BYTES_PER_S * opening_ms / per_file_ms
    yield FoundInRun(
        location=lines[0].location,
        evidence={
            "file_bytes": round(size),
            "opening_ms_per_file": round(per_file_ms, 3),
            "opening_share_of_sample": round(opening_ms / feed.sample_ms, 3),
            "bytes_per_s": round(size / (1e-3 * per_file_ms)),
            "num_workers": use.workers,
        },
        cause=message("in114.cause", place=place_name(lines[0].location), file_ms=per_file_ms, file_kib=size / 1024),
        change=message("in114.change"),
        edits=Edits((BatchCosts(feed.work_ms * (1 - max(0.0, opening_ms - copy_ms) / feed.sample_ms), feed.work_ms),)),
    )


def _reading_lines(run: Evidence) -> list[LineCost]:
    """Lines that open a file, and those of the same function that read or parse what is in it."""
    texts = [(line, text_at(run, line.location)) for line in sample_lines(run)]
    opens = [(line, text) for line, text in texts if _OPENS.search(text) and not _DECODES.search(text)]
    handles = {
        (line.location.file, line.function, found.group(1) or found.group(2))
        for line, text in opens
        if (found := _HANDLE.search(text)) is not None
    }
    reads = [
        line
        for line, text in texts
        if any((line.location.file, line.function, name) in handles for name in re.findall(r"\w+", text))
    ]
    chosen = {line.location for line in (*(line for line, _ in opens), *reads)}
    return [line for line, _ in texts if line.location in chosen]
