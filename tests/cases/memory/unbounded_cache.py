"""Code that has ME711, and that must stay quiet."""

from __future__ import annotations

from tests.cases.code import SourceCase

_TRAIN = """
loader = DataLoader(Images(paths), batch_size=32, shuffle=True%s)
for epoch in range(10):
    for batch in loader:
        model(batch).backward()
        optimizer.step()
"""
_DICT = """
class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.cache = {}

    def __getitem__(self, index):
        if index in self.cache:
            return self.cache[index]
        image = decode(self.paths[index])
        %s
        return image
"""
_KEPT = "self.cache[index] = image"
_MEASURED = "if len(self.cache) < self.most:\n            self.cache[index] = image"
SOURCE_CASES = (
    SourceCase("finds it when nothing bounds the cache", _DICT % f"{_KEPT}  # found" + _TRAIN % ""),
    SourceCase("quiet when it takes no more beyond a limit", _DICT % _MEASURED + _TRAIN % ""),
    SourceCase("quiet with workers, where it is said of each of them", _DICT % _KEPT + _TRAIN % ", num_workers=4"),
    SourceCase("quiet when nothing is kept", _DICT % "pass" + _TRAIN % ""),
)
