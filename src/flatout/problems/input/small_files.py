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

from flatout.problems.found import FoundInRun
from flatout.problems.hot_lines import place_name, text_at
from flatout.problems.input.symptoms import is_storage_bound, sample_lines
from flatout.problems.input.throughput import batch_ms, gain_by_cheaper, has_busy_workers, starving_loader
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.message import message
from flatout.records.report import Gain

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
# What is left of the opening when samples are copied out of one file: at worst, expected, at best.
_LEFT_AT_WORST, _LEFT, _LEFT_AT_BEST = 0.33, 0.1, 0.02


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use, size = starving_loader(run), run.file_bytes
    if use is None or use.cost is None:
        return
    if use.workers and (not has_busy_workers(run, use) or is_storage_bound(run, use)):
        return
    texts = [(line, text_at(run, line.location)) for line in sample_lines(run)]
    lines = [line for line, text in texts if _OPENS.search(text) and not _DECODES.search(text)]
    opening_ms = sum(line.ms for line in lines)
    if not lines or size is None or size > _SMALL_BYTES or opening_ms < _MOST_OF_IT * (use.sample_ms or 0.0):
        return
    # Where the loader does not batch, an item of the dataset is a batch, and so is a file.
    per_file_ms = opening_ms * (1.0 if use.batch_size is not None else max(1.0, run.samples_per_step or 1.0))
    if size / max(1e-3 * per_file_ms, 1e-9) > _SLOW_BYTES_PER_S:
        return
    gain = _gain(run, use, opening_ms)
    yield FoundInRun(
        location=lines[0].location,
        evidence={
            "file_bytes": round(size),
            "opening_ms_per_file": round(per_file_ms, 3),
            "opening_share_of_sample": round(opening_ms / max(use.sample_ms or 0.0, 1e-9), 3),
            "bytes_per_s": round(size / (1e-3 * per_file_ms)),
            "num_workers": use.workers,
        },
        cause=message("in114.cause", place=place_name(lines[0].location), file_ms=per_file_ms, file_kib=size / 1024),
        change=message("in114.change"),
        predicted_gain=gain,
    )


def _gain(run: Evidence, use: LoaderUse, opening_ms: float) -> Gain | None:
    work_ms = batch_ms(run, use)
    if work_ms is None or not use.sample_ms:
        return None
    part = opening_ms / use.sample_ms
    worst, expected, best = (work_ms * (1 - part * (1 - left)) for left in (_LEFT_AT_WORST, _LEFT, _LEFT_AT_BEST))
    method = message("in114.gain", opening_share=part, left_share=_LEFT)
    return gain_by_cheaper(run, use, (worst, expected, best), method)
