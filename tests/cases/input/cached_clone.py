"""Code that has IN115, and that must stay quiet."""

from __future__ import annotations

from tests.cases.code import SourceCase, cases_in

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
