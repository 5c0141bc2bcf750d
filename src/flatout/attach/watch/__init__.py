"""The watchers: each sees one kind of event in the user's process and records it. This is the list of them."""

from __future__ import annotations

from ..context import Context, Watcher
from .backward import BackwardWatch, RecomputeWatch
from .fetch import FetchWatch
from .interruptions import CollectorWatch, CompilerWatch, OutputWatch, TrainModeWatch
from .lines import LineWatch
from .loader import LoaderWatch
from .memory import MemoryWatch
from .optimizer import OptimizerWatch
from .transfers import HiddenSyncWatch, TransferWatch


def make_watchers(context: Context) -> list[Watcher]:
    """Those that this process needs, in the order in which they are installed."""
    watchers: list[Watcher] = []
    if context.settings.get("stages"):
        # Only where it is asked for: every import delays the script's start.
        from .stages import StageWatch

        # First, as it comes between the backward passes and the device clock.
        watchers.append(StageWatch(context))
    watchers += [
        BackwardWatch(context),
        TrainModeWatch(context),
        OptimizerWatch(context),
        CollectorWatch(context),
        CompilerWatch(context),
        LoaderWatch(context),
        RecomputeWatch(context),
        FetchWatch(context),
        OutputWatch(context),
        MemoryWatch(context),
        LineWatch(context),
    ]
    if context.settings.get("window", True):
        from .links import LinkWatch, TableWatch

        watchers += [LinkWatch(context), TableWatch(context)]
        if context.has_device or context.settings.get("operations_of"):
            from .operations import OperationWatch

            watchers.append(OperationWatch(context))
    if context.has_device:
        watchers.append(TransferWatch(context))
        if context.settings.get("sync_windows", True):
            watchers.append(HiddenSyncWatch(context))
    if context.settings.get("end_steps") or context.settings.get("end_s"):
        from .ending import EndingWatch

        # Last, as it may not return.
        watchers.append(EndingWatch(context))
    return watchers
