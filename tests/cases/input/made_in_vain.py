"""Runs that have IN119, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Evidence, WorkerProcesses
from flatout.records.report import LineCost, Location
from tests.cases.evidence import Case, loader, starved_run, worker_cost

_FILE = "stream.py"
_LATE = """\
class Stream(IterableDataset):
    def decode(self, record):
        return Image.open(record)
    def __iter__(self):
        info = get_worker_info()
        for number, sample in enumerate(map(self.decode, self.records)):
            if number % info.num_workers == info.id:
                yield sample
"""
_EARLY = """\
class Stream(IterableDataset):
    def decode(self, record):
        return Image.open(record)
    def __iter__(self):
        info = get_worker_info()
        for number, record in enumerate(self.records):
            if number % info.num_workers == info.id:
                yield self.decode(record)
"""
_SLICED = """\
class Stream(IterableDataset):
    def samples(self):
        for record in self.records:
            yield decode(record)
    def __iter__(self):
        info = get_worker_info()
        return islice(self.samples(), info.id, None, info.num_workers)
def decode(record):
    return Image.open(record)
"""
_COST = worker_cost(fetch_ms_per_sample=12.0, busy_share=0.98, samples=9600)


def _lines(share: float, number: int = 3) -> tuple[LineCost, ...]:
    return (LineCost(Location(_FILE, number), "decode", "fetch", share, 12.0 * share),)


def _run(text: str, lines: tuple[LineCost, ...], workers: int = 2) -> Evidence:
    use = loader(
        cost=_COST, processes=WorkerProcesses(cpu_share=0.97), num_workers=workers, sampler=None, dataset_len=None
    )
    return starved_run(use, cpus=2.0, files={_FILE: text}, worker_lines=lines)


CASES = (
    Case("finds it when samples are decoded before it is asked whose they are", _run(_LATE, _lines(0.9)), found=True),
    Case("finds it when a generator of samples is sliced", _run(_SLICED, _lines(0.9, 9)), found=True),
    Case("quiet when it is asked first", _run(_EARLY, _lines(0.9)), found=False),
    Case("quiet when what is done before is cheap", _run(_LATE, _lines(0.02)), found=False),
    Case("quiet with one worker", _run(_LATE, _lines(0.9), workers=1), found=False),
)
