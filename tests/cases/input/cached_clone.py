"""Runs and code that have IN115, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import LineCost, Location
from tests.cases.code import SourceCase, cases_in
from tests.cases.evidence import STARVED_MS, Case, loader, run, worker_cost

_TRAIN = """
loader = DataLoader(Volumes(paths), batch_size=4, num_workers=4)
for batch in loader:
    model(batch).backward()
    optimizer.step()
"""
_HELD = """
class Volumes(Dataset):
    def __init__(self, paths):
        self.volumes = [torch.load(path) for path in paths]
        self.infos = [read_info(path) for path in paths]

    def __getitem__(self, index):
        %s
"""
_CACHE = """
class Recent:
    def __init__(self):
        self.items = {}

    def get(self, key):
        if key in self.items:
            return self.items[key].clone()  # found
        return None

class Volumes(Dataset):
    def __init__(self, paths):
        self.paths, self.cache = paths, Recent()

    def __getitem__(self, index):
        return self.cache.get(index)
"""

_FILE = """
class Graphs(Dataset):
    def __getitem__(self, index):
        if self.shared:
            return self.graphs[index]
        return copy.deepcopy(self.graphs[index])
"""
_OWN = loader(num_workers=0, cost=worker_cost(workers=0, fetch_ms_per_sample=1.8, collate_ms_per_sample=0.1))


def _lines(line: int, phase: str = "data") -> tuple[LineCost, ...]:
    place, elsewhere = Location("data.py", line), Location("data.py", 40)
    return (LineCost(place, "__getitem__", phase, 0.5, 50.0), LineCost(elsewhere, "pad", phase, 0.1, 10.0))


CASES = (
    Case(
        "finds it where copying takes most of a sample, in the training process",
        run(
            loaders=(_OWN,), ms=STARVED_MS, all_lines=_lines(6), files={"data.py": _FILE}, main_cpu_share=1.0, cpus=1.0
        ),
        found=True,
    ),
    Case(
        "finds it in a worker",
        run(
            loaders=(loader(cost=worker_cost(fetch_ms_per_sample=11.0, busy_share=0.95)),),
            ms=STARVED_MS,
            worker_lines=_lines(6, "worker"),
            files={"data.py": _FILE},
            cpus=4.0,
        ),
        found=True,
    ),
    Case(
        "quiet when the time goes to another line",
        run(
            loaders=(_OWN,), ms=STARVED_MS, all_lines=_lines(5), files={"data.py": _FILE}, main_cpu_share=1.0, cpus=1.0
        ),
        found=False,
    ),
    Case(
        "quiet when nobody waits for batches",
        run(loaders=(_OWN,), all_lines=_lines(6), files={"data.py": _FILE}, main_cpu_share=1.0, cpus=1.0),
        found=False,
    ),
)

_case = cases_in(_HELD + _TRAIN)
SOURCE_CASES = (
    _case("finds it when a tensor is cloned", "return self.volumes[index].clone(), index  # found"),
    _case("finds it when a whole sample is", "sample = copy.deepcopy(self.volumes[index])  # found", "return sample"),
    SourceCase("finds it in the cache that the dataset asks", _CACHE + _TRAIN),
    _case("quiet when the sample is then changed", "x = self.volumes[index].clone()", "x[0] = 0", "return x"),
    _case("quiet when somebody may change it", "x = self.volumes[index].clone()", "return self.augment(x)"),
    _case("quiet when it is a list of facts", "return copy.deepcopy(self.infos[index])"),
    _case("quiet when the element itself goes out", "return self.volumes[index]"),
    _case("quiet when what was just made is cloned", "return torch.load(self.paths[index]).clone()"),
)
