"""The operations of a step as a window recorded them: what the device was asked for, and what it could do at best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flatout.diagnose.ranks import Rank, told
from flatout.model.attention import find_hand_attention
from flatout.model.data_sheets import data_sheet
from flatout.model.ladder import make_ladder
from flatout.model.work import Given, Operation, shares_of
from flatout.records.evidence import HandAttention
from flatout.records.report import GpuUse, Ladder, WorkShare
from flatout.records.roofline import Roofline
from flatout.store.run import StoredRun
from flatout.words.codec import decode


def work_shares(ranks: Sequence[Rank]) -> tuple[WorkShare, ...]:
    """Of the first rank that has a window; empty where none was recorded."""
    window = _window(ranks)
    return () if window is None else shares_of(read_operations(window), _steps(window))


def hand_attention(ranks: Sequence[Rank]) -> HandAttention | None:
    """None where the window shows none, or there is none."""
    window = _window(ranks)
    if window is None:
        return None
    found = find_hand_attention(read_operations(window))
    return (
        None
        if found is None
        else replace(found, calls=found.calls / _steps(window), bytes=found.bytes / _steps(window))
    )


def _window(ranks: Sequence[Rank]) -> Mapping[str, Any] | None:
    windows = (told(rank.recording, "operations") for rank in ranks)
    return next((found[-1] for found in windows if found), None)


def _steps(window: Mapping[str, Any]) -> int:
    return max(1, int(window.get("steps", 1)))


def read_operations(window: Mapping[str, Any]) -> list[Operation]:
    names = [str(name) for name in window["names"]]
    tensors = [Given(tuple(sizes), tuple(strides), str(dtype)) for sizes, strides, dtype in window["tensors"]]
    knows_memory, convolves_in_tf32 = bool(window.get("with_memory")), bool(window.get("convolves_in_tf32", True))
    operations = []
    for name, phase, given, made, numbers, tf32 in window["rows"]:
        operations.append(
            Operation(
                name=names[name],
                phase=str(phase),
                given=tuple(
                    replace(tensors[tensor], memory=None if memory < 0 else memory) for tensor, memory in given
                ),
                made=tuple((int(memory), int(size)) for memory, size in made) if knows_memory else None,
                numbers=tuple(numbers),
                tf32=convolves_in_tf32 if "convolution" in names[name] else bool(tf32),
            )
        )
    return operations


def ladder_of(run: StoredRun, device: str, gpu: GpuUse, step_ms: float | None) -> Ladder | None:
    """None where no window recorded operations, or nobody knows what the device can do."""
    sheet = data_sheet(device)
    reached = _measured(run, device) or sheet
    if reached is None or step_ms is None:
        return None
    busy_ms = None if gpu.kernels is None else gpu.kernels.busy_ms
    return make_ladder(step_ms, busy_ms, gpu.work, reached, sheet)


def _measured(run: StoredRun, device: str) -> Roofline | None:
    kept = run.manifest.environment.get("rooflines")
    for plain in kept if isinstance(kept, list) else ():
        try:
            roofline = decode(Roofline, plain)
        except (TypeError, ValueError):
            continue  # of another version
        if roofline.device == device and roofline.is_sound:
            return roofline
    return None
