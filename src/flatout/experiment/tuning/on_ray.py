"""Makes trials on a Ray cluster: `--on ray` for the one that runs here or a new one, `--on ray://host:port`.

A trial gets a GPU and its share of the node's processors, or a whole node where there are no GPUs: beside each other,
trials would measure each other. The working folder must be the same on every node, on a disk they share.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from flatout.errors import FlatoutError
from flatout.experiment.tuning.search import Measure
from flatout.records.message import verbatim
from flatout.records.trial import Trial
from flatout.records.tune import Ask

NAME = "ray"
_THREADS = "OMP_NUM_THREADS"


class OnRay:
    """Use as a context manager. `processors` limits a cluster that is started here."""

    def __init__(self, where: str, processors: int | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise FlatoutError(f"--on {where} needs Ray: pip install 'flatout[ray]'") from None
        self._ray: Any = ray
        self._address = where if where != NAME else None
        self._processors = processors
        self._is_ours = False
        self._resources: dict[str, float] = {}
        self.width = 1

    def __enter__(self) -> OnRay:
        ray = self._ray
        if not ray.is_initialized():
            ours = {} if self._address or self._processors is None else {"num_cpus": self._processors}
            try:
                ray.init(address=self._address, log_to_driver=False, logging_level="ERROR", **ours)
            except Exception as error:  # Ray raises what its transport does: nothing was reached in any case
                raise FlatoutError(f"--on {self._address or NAME}: no cluster there ({_line(error)})") from error
            self._is_ours = True
        self._resources, self.width = share([node["Resources"] for node in ray.nodes() if node["Alive"]])
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            self._ray.shutdown()

    def spread(self, measure: Measure, asks: Sequence[Ask]) -> Iterator[tuple[int, Trial]]:
        """Each trial as it is done. A node that is lost takes its trial with it, and nothing else."""
        ray = self._ray
        remote = ray.remote(max_retries=0, **self._resources)(_made)
        shared, here = ray.put(measure), (os.getcwd(), os.environ.get(_THREADS))
        waiting = {remote.remote(shared, ask, *here): number for number, ask in enumerate(asks)}
        try:
            while waiting:
                (done,), _ = ray.wait(list(waiting), num_returns=1)
                number = waiting.pop(done)
                try:
                    yield number, ray.get(done)
                except ray.exceptions.RayError as error:
                    yield number, lost(asks[number], error)
        finally:
            for reference in waiting:
                ray.cancel(reference)


def share(nodes: Sequence[dict[str, float]]) -> tuple[dict[str, float], int]:
    """What a trial takes, and how many of them can run at once."""
    gpus = sum(node.get("GPU", 0.0) for node in nodes)
    if gpus >= 1:
        per_gpu = [node.get("CPU", 1.0) / node["GPU"] for node in nodes if node.get("GPU", 0.0) >= 1]
        return {"num_gpus": 1.0, "num_cpus": max(1.0, float(int(min(per_gpu))))}, int(gpus)
    processors = [node["CPU"] for node in nodes if node.get("CPU", 0.0) >= 1]
    if not processors:
        raise FlatoutError("the Ray cluster has no node with a processor to give")
    return {"num_cpus": min(processors)}, len(processors)


def lost(ask: Ask, error: Exception) -> Trial:
    return Trial(
        arm=str(dict(ask.setting)), remedies={}, ending="crashed", why=verbatim(_line(error)), knobs=dict(ask.setting)
    )


def _made(measure: Measure, ask: Ask, folder: str, threads: str | None) -> Trial:
    os.chdir(folder)
    # Ray sets it for its workers; the script is to have what it has without Ray.
    os.environ.pop(_THREADS, None)
    if threads is not None:
        os.environ[_THREADS] = threads
    return measure(ask)


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]
