"""What detectors ask of a project's source. Each part is computed when first asked for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

from flatout.records.message import message
from flatout.records.source import Related
from flatout.source.flow.guards import ProgramPoint
from flatout.source.flow.values import Values
from flatout.source.project.project import Project
from flatout.source.syntax.nodes import called_name
from flatout.source.training.caches import Cache, find_caches
from flatout.source.training.job_settings import JobSettings, find_job_settings
from flatout.source.training.jobs import TrainingJob, find_jobs
from flatout.source.training.loaders import Dataset, Loader, find_datasets, find_loaders
from flatout.source.training.regions import Region, Training
from flatout.source.training.syncs import Sync, find_syncs
from flatout.source.training.tensors import RegionTensors


class Code:
    """A project with its training, values, tensors, loaders, datasets and settings."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def training(self) -> Training:
        return Training(self.project)

    @cached_property
    def values(self) -> Values:
        return Values(self.project)

    @cached_property
    def tensors(self) -> RegionTensors:
        return RegionTensors(self.project)

    @cached_property
    def loaders(self) -> tuple[Loader, ...]:
        """Loaders in files that take part in a training."""
        return tuple(
            loader for loader in find_loaders(self.project) if self.training.takes_part(loader.function.module)
        )

    @cached_property
    def datasets(self) -> tuple[Dataset, ...]:
        """Datasets that the loaders are given, or may be."""
        return tuple(find_datasets(self.project, self.training, self.loaders))

    @cached_property
    def caches(self) -> tuple[Cache, ...]:
        """Caches that the datasets fill while they make samples."""
        return tuple(find_caches(self.datasets, self.values))

    @cached_property
    def syncs(self) -> tuple[Sync, ...]:
        return tuple(find_syncs(self.training, self.tensors))

    @cached_property
    def jobs(self) -> tuple[TrainingJob, ...]:
        """Each training with all its files."""
        return find_jobs(self.training)

    @cached_property
    def job_settings(self) -> tuple[JobSettings, ...]:
        """The settings of each training job."""
        return tuple(find_job_settings(self.jobs, self.training, self.values, self.loaders))

    def each_step(self) -> Iterator[tuple[Region, ProgramPoint]]:
        """Every node that runs in every training step."""
        for region in self.training.regions:
            for point in region.main_path():
                yield region, point

    def calls_each_step(self, *names: str) -> Iterator[tuple[Region, ProgramPoint, ast.Call]]:
        """Calls of functions of these names in every training step, each once."""
        seen: set[int] = set()
        for region, point in self.each_step():
            node = point.node
            if isinstance(node, ast.Call) and called_name(node) in names and id(node) not in seen:
                seen.add(id(node))
                yield region, point, node


def call_path(region: Region) -> tuple[Related, ...]:
    """The calls that lead from the training loop to a region, the loop first."""
    calls = [
        Related(caller.module.place(call), message("related.calls", function=called.function.qualified))
        for (called, _), (caller, call) in pairwise(region.call_chain(region.function.node))
    ]
    root = region.root
    if root.loop is not None and calls:
        calls.append(Related(root.module.at(root.loop.lineno), message("related.training_loop")))
    return tuple(reversed(calls))
