"""The kinds of record a watched process writes, and their layout. The header of every recording carries this table.

A slot is 128 bytes: kind (1), flags (1), length (2), payload (120), CRC-32 of the first 124 (4).
Readers decode by the table in the header, so a new field or kind never breaks an old recording.
"""

from __future__ import annotations

import struct

SLOT_BYTES = 128
BODY_BYTES = 124
PAYLOAD_BYTES = 120
VERSION = 1
MAGIC = b"FLATOUT\x01"

PHASES = ("data", "h2d", "forward", "backward", "optimizer", "sync", "eval", "checkpoint", "logging", "gc", "other")
DATA, H2D, FORWARD, BACKWARD, OPTIMIZER, SYNC, EVAL, CHECKPOINT, LOGGING, GC, OTHER = range(11)

# What a thread was found doing. "pipe" is a socket too, "process" a child's start or end.
NATURES = ("unknown", "python", "native", "file", "pipe", "lock", "process", "sleep")
UNKNOWN_NATURE, PYTHON, NATIVE, FILE, PIPE, LOCK, PROCESS, SLEEP = range(8)
# Whose work a line of the training thread does: within a call of a module, or in torch's own functions on gradients.
NEITHER, IN_MODULE, ON_GRADIENTS = range(3)

# What a loader's worker does: its samples, putting the batch together, handing it over, waiting for an order, waiting
# for room to hand over. The recording of a worker's lines has them where that of the training thread has phases.
STAGES = ("samples", "collate", "handover", "order", "room")
SAMPLES, COLLATE, HANDOVER, ORDER, ROOM = range(5)

# (field, struct code) in order; a leading count makes an array. Times are of the monotonic clock, in ns.
KINDS: dict[str, tuple[int, tuple[tuple[str, str], ...]]] = {
    # JSON, spread over as many slots as it needs (flags: 1 first, 2 last; length: bytes used).
    "text": (1, ()),
    # One optimizer step, or `steps` of them merged in a very long run.
    "step": (
        2,
        (
            ("index", "Q"),  # of the last step merged here
            ("start_ns", "Q"),
            ("wall_ns", "Q"),
            ("steps", "I"),
            ("samples", "I"),  # 0xFFFFFFFF: not known
            ("phase_s", "11f"),
            ("own_ns", "Q"),  # what the tracer itself cost
            ("queue_depth", "h"),  # batches ready when one was requested; -1 not measured
            ("batches", "I"),
            ("backwards", "I"),
            ("syncs", "I"),
            ("copies", "I"),
            ("flags", "H"),  # 1 a scaler skipped it, 2 a replayed CUDA graph, 4 samples from the autograd graph
        ),
    ),
    # Device timeline of one sampled step, in milliseconds (NaN: not measured).
    "device": (
        3,
        (
            ("index", "Q"),
            ("starved_ms", "f"),
            ("forward_ms", "f"),  # batch arrived → backward begins
            ("backward_ms", "f"),
            ("optimizer_ms", "f"),  # backward ended → optimizer ended
            ("other_ms", "f"),  # optimizer ended → next batch requested
            ("step_ms", "f"),
            ("boundaries", "H"),  # how many were looked at
            ("drained", "H"),  # at how many the device had nothing left to do
        ),
    ),
    # Running totals of one call site since the process began; the last record of a site counts. One for each slice of
    # the run is kept, so that what came before some step can be taken off. `op` and place are in a "site" text.
    "site": (
        4,
        (
            ("site", "I"),
            ("count", "Q"),
            ("ns", "Q"),
            ("max_ns", "Q"),
            ("bytes", "Q"),
            ("pinned", "Q"),
            ("non_blocking", "Q"),
            ("window_steps", "I"),  # steps looked at, for sites seen only in sampled windows; else 0
            ("slice", "Q"),  # the index of the first step of the slice
        ),
    ),
    # Running totals of fetching in one process for one loader, over one interval; later intervals are new records.
    "fetch": (
        5,
        (
            ("loader", "I"),
            ("worker", "i"),  # -1: the main process (0 workers)
            ("start_ns", "Q"),
            ("end_ns", "Q"),
            ("batches", "I"),
            ("samples", "I"),
            ("fetch_ns", "Q"),
            ("collate_ns", "Q"),
            ("max_batch_ns", "Q"),
            ("idle_ns", "Q"),  # between batches: handing one over, and waiting for an order
            # Of the thread that fetches, by the kernel: on a processor, and ready for one without it; -1: not known.
            ("run_ns", "q"),
            ("delay_ns", "q"),
            # Of these, the first batch that the process ever made: modules are imported then, and files opened.
            ("first_ns", "Q"),
            ("first_samples", "I"),
        ),
    ),
    # An iterator of a loader was made (an epoch began): how long that took.
    "epoch": (6, (("loader", "I"), ("workers", "I"), ("start_ns", "Q"), ("end_ns", "Q"))),
    # A span worth a mark on the timeline: evaluation, checkpoint, a long garbage collection.
    "span": (7, (("phase", "B"), ("start_ns", "Q"), ("end_ns", "Q"), ("site", "i"))),
    # Running totals of the line sampler over one slice of time: seconds seen under a line ("line" text) in a phase.
    "line": (
        8,
        (
            ("line", "I"),
            ("phase", "B"),
            ("samples", "Q"),
            ("seconds", "d"),
            ("nature", "B"),  # of NATURES: what the thread did there
            ("in_module", "B"),  # IN_MODULE, ON_GRADIENTS or NEITHER
            ("since_ns", "Q"),  # when the slice began; each slice has totals of its own
        ),
    ),
    # Written over and over by the line sampler: this process was alive then, and in this phase.
    "beat": (10, (("end_ns", "Q"), ("phase", "B"))),
    # One stage of the model in one sampled step; its name is in the "stages" text. NaN: not measured.
    "stage": (11, (("index", "Q"), ("stage", "I"), ("calls", "I"), ("forward_ms", "f"), ("backward_ms", "f"))),
    # Recording stopped (disk full) and went on: what was lost.
    "gap": (9, (("start_ns", "Q"), ("end_ns", "Q"), ("dropped", "Q"))),
}
UNKNOWN_SAMPLES = 0xFFFFFFFF


def packer(kind: str) -> struct.Struct:
    """The body of a slot of this kind: its number, flags, length, its fields, padding."""
    codes = "".join(code for _, code in KINDS[kind][1])
    size = struct.calcsize("<" + codes)
    assert size <= PAYLOAD_BYTES, kind
    return struct.Struct(f"<BBH{codes}{PAYLOAD_BYTES - size}x")


def table() -> dict[str, object]:
    """KINDS as it goes into a recording's header."""
    return {name: {"id": number, "fields": [list(f) for f in fields]} for name, (number, fields) in KINDS.items()}
