"""Makes batches in worker processes: `num_workers`, whatever the script says.

Same samples in the same order: torch draws the same random numbers for the order with any number of workers. Random
transforms draw from generators of the workers' own, as they would if the script set it; the run's record says so where
a sample was seen to draw. Loaders that workers would break or make repeat samples (an IterableDataset that is not
sharded, a dataset on the GPU, what cannot be pickled for a spawned worker) are left alone, and that is told. "auto" is
the number of processors this process may use, less one for the training itself, shared by the ranks of the machine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..answers import Answer, by_finding
from ..values import Count
from .arguments import LeftAlone, change_arguments
from .hazards import refuse_hazards
from .randomness import tell_of_randomness

if TYPE_CHECKING:
    from ...records.report import RunReport
    from ..site import Site

ID = "loader.workers"
TITLE = "Batches are made in worker processes"
SAFETY = "lossless"
VALUE = Count(0, 1024, auto=True)


def applies(report: RunReport) -> Answer:
    return by_finding(report, ID, "the workers keep up with the training", evidence="workers", value="auto")


def apply(site: Site, value: Any) -> None:
    from ...feed.processors import workers_allowed

    # Above this many, workers take the processors from each other and from the training.
    most = workers_allowed(os.environ)
    workers = most if value == "auto" else int(value)
    torch = site.torch

    def change(arguments: dict[str, Any]) -> str | None:
        before = arguments["num_workers"]
        if before == workers:
            return None
        if workers:
            refuse_hazards(torch, arguments)
        elif arguments.get("timeout") or arguments.get("persistent_workers") or arguments.get("prefetch_factor"):
            raise LeftAlone("it is made with settings that need workers")
        arguments["num_workers"] = workers
        return f"num_workers {before} → {workers}"

    change_arguments(site, change)
    if workers:
        tell_of_randomness(site)
