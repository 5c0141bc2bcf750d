"""Keeps more batches ready: `prefetch_factor`, the number of batches each worker makes ahead.

The same batches in the same order, made earlier; they wait in shared memory, so each costs its size there. Loaders
without workers make nothing ahead and are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..answers import Answer, by_finding
from ..values import Count
from .arguments import change_arguments

if TYPE_CHECKING:
    from ...records.report import RunReport
    from ..site import Site

ID = "loader.prefetch"
TITLE = "Each worker keeps more batches ready"
SAFETY = "lossless"
VALUE = Count(1, 1024)


def applies(report: RunReport) -> Answer:
    return by_finding(report, ID, "batches are ready when they are asked for, or workers are what is missing", value=4)


def apply(site: Site, value: Any) -> None:
    def change(arguments: dict[str, Any]) -> str | None:
        before = arguments.get("prefetch_factor")
        if not arguments["num_workers"] or before == value:
            return None
        arguments["prefetch_factor"] = value
        return f"prefetch_factor {2 if before is None else before} → {value}"

    change_arguments(site, change)
