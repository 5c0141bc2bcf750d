"""A progress bar on the terminal while a bundled workload runs: how far it is, and how fast."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from flatout.report import text
from flatout.report.live import LiveFigures

_SAY = {
    "starting": "starting",
    "training": "training",
    "speed": "{rate} samples/s",
    "data": "waiting for data {share}",
}


class StepsBar:
    """Shows the steps done out of `steps`. Gone from the screen when closed: the verdict takes its place."""

    def __init__(self, steps: int, width: int, color: bool) -> None:
        console = Console(stderr=True, width=width, no_color=not color)
        self._progress = Progress(
            TextColumn(" {task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[speed]}"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task(_SAY["starting"], total=steps, speed="")
        self._progress.start()

    def show(self, figures: LiveFigures) -> None:
        if not figures.steps:
            return
        pieces = []
        if figures.samples_per_s is not None:
            pieces.append(_SAY["speed"].format(rate=text.figure(figures.samples_per_s)))
        if figures.phases.get("data", 0.0) >= 0.1:
            pieces.append(_SAY["data"].format(share=text.percent(figures.phases["data"])))
        self._progress.update(
            self._task, description=_SAY["training"], completed=figures.steps, speed=" · ".join(pieces)
        )

    def close(self) -> None:
        self._progress.stop()
