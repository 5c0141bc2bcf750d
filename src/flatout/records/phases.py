"""The phases a training step is divided into. Their order is the order of every table and bar."""

from __future__ import annotations

PHASES = (
    "data",
    "h2d",
    "forward",
    "backward",
    "optimizer",
    "sync",
    "eval",
    "checkpoint",
    "logging",
    "gc",
    "other",
)
