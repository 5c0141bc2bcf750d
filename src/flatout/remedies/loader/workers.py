"""Makes batches in worker processes: `num_workers`, whatever the script says.

Same samples in the same order: the order is drawn when the first batch is asked for, as it is without workers. Samples
that are the same whoever reads them are handed to workers one by one, as `flatout.DataLoader` does, so that a slow one
holds up nothing behind it. Random transforms draw from generators of the workers' own, as they would if the script set
it; the run's record says so where a sample or the collate function was seen to draw. An IterableDataset that shares its
samples out among workers gives other batches, and that is told. Loaders that workers would break, make repeat samples
or see others (an IterableDataset that is not sharded, a dataset on the GPU, what cannot be pickled for a spawned
worker, samples that depend on how many were read before, a sampler that draws with every batch) are left alone, and
that is told. Where a sample fails in a worker that the script did not ask for, it is read again with a worker's number
that the script expects: datasets with room for their own workers only go on, and the record says so.

"auto" measures: a child process times a few samples; cheap ones get no workers where they had none. The rest begin
with as many as a quick training step would need, at most the processors this process may use less one for the training
itself, shared by the ranks of the machine, and no more than an epoch has batches. Then the number follows the pace of
the training while it runs. The workers live from one epoch to the next; the draw that starting them would make is made
all the same. Random transforms are then seeded by a sample's place in the epoch, not by worker. Batches come in memory
that is used again: torch's loader takes fresh memory for each one, which the process that trains has to free. When the
machine's memory runs short, workers that the script did not ask for are renewed, so that what datasets keep in each of
them goes; where that does not help there are fewer, and that is told.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..answers import Answer, by_finding
from ..places import caller
from ..values import Count
from .adopting import Adopting, note_added
from .arguments import LeftAlone, change_arguments
from .as_made import copy_as_made, put_back_when_undone
from .hazards import refuse_hazards
from .kept import draw_as_before, keep
from .randomness import when_an_epoch_begins

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

    torch = site.torch
    tunes = value == "auto"
    # Above this many, workers take the processors from each other and from the training.
    most = workers_allowed(os.environ)
    adopting = Adopting(site, tunes, most)
    remember = put_back_when_undone(site, "num_workers", "prefetch_factor", "persistent_workers")

    def give(arguments: dict[str, Any], workers: int) -> None:
        if workers:
            refuse_hazards(torch, arguments)
        note_added(arguments, caller(torch), ID)
        remember(arguments["self"])
        arguments["num_workers"] = workers

    def change(arguments: dict[str, Any]) -> str | None:
        before = arguments["num_workers"]
        if tunes:
            give(arguments, before or most)  # for now
            keep(arguments, ID)
            return None
        if before == value:
            return None
        needs_workers = ("timeout", "persistent_workers", "prefetch_factor")
        if not value and any(arguments.get(name) for name in needs_workers):
            raise LeftAlone("it is made with settings that need workers")
        give(arguments, value)
        return f"num_workers {before} → {value}"

    def install(module: Any) -> None:
        draw_as_before(site, module, ID)
        copy_as_made(site, module.DataLoader)
        adopting.install(module.DataLoader)
        when_an_epoch_begins(site, module.DataLoader, adopting.begin)

    change_arguments(site, change)
    site.after_import("torch.utils.data.dataloader", install)
