"""A context for one watcher, without a session, and what stands for its recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flatout.attach.batch import PaddingInspector
from flatout.attach.context import Context
from flatout.attach.graph import GraphInspector
from flatout.attach.phases import Phases, StepWriter
from flatout.attach.recorder import Output
from flatout.attach.sites import Sites
from flatout.attach.tracer import Tracer


class Notes:
    """Stands for a recording."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, Any]] = []

    def text(self, what: str, value: object) -> None:
        self.texts.append((what, value))


def make_context(
    output: Callable[[], Any] = Output, trouble: Callable[[Exception], None] = lambda error: None
) -> Context:
    writer = StepWriter(output)
    phases = Phases(writer)
    graph = GraphInspector(torch, phases, PaddingInspector(torch, output))
    return Context(torch, Tracer(phases.consume), phases, writer, Sites(output), graph, output, trouble)
