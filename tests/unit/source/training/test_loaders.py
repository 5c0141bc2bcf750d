"""Which dataset a loader is given, what makes its samples, and what it keeps of them."""

from __future__ import annotations

import textwrap

import pytest

from flatout.source.code import Code
from flatout.source.project.loading import load_texts
from flatout.source.training.caches import Cache

_DATA = """
    class Images(Dataset):
        def __init__(self, paths):
            self.paths, self.cache = paths, {}

        def __getitem__(self, index):
            return self.picture(index)

        def picture(self, index):
            if index not in self.cache:
                self.cache[index] = decode(self.paths[index])
            return self.cache[index]
"""
_TRAIN = """
    for batch in loader:
        model(batch).backward()
        optimizer.step()
"""


def code(**files: str) -> Code:
    return Code(load_texts({f"{name}.py": textwrap.dedent(text) for name, text in files.items()}))


@pytest.mark.parametrize(
    "made",
    [
        "loader = DataLoader(Images(paths))",
        "data = Images(paths)\n    loader = DataLoader(dataset=data)",
        "train, val = random_split(Images(paths), [9, 1])\n    loader = DataLoader(train)",
        "sets = {'train': Images(paths)}\n    loader = DataLoader(sets['train'])",
        "def feed(data):\n        return DataLoader(data)\n    loader = feed(Images(paths))",
        "def both():\n        return Images(a), Images(b)\n    train, val = both()\n    loader = DataLoader(train)",
    ],
)
def test_a_loader_is_followed_to_its_dataset(made: str) -> None:
    (dataset,) = code(train=_DATA + "\n    " + made + _TRAIN).datasets

    assert dataset.cls.name == "Images" and dataset.is_certain
    assert [one.name for one in dataset.functions] == ["__getitem__", "picture"]


def test_where_it_cannot_be_followed_the_training_s_datasets_may_be_it() -> None:
    made = "from data import Images\nloader = DataLoader(DATASETS[args.data](paths))"

    (dataset,) = code(data=_DATA, train=made + textwrap.dedent(_TRAIN)).datasets

    assert dataset.cls.name == "Images" and not dataset.is_certain


def _cache(data: str) -> Cache | None:
    found = code(train=data + "\n    loader = DataLoader(Images(paths))" + _TRAIN).caches
    return found[0] if found else None


def test_a_cache_is_seen_in_a_helper_with_its_key() -> None:
    cache = _cache(_DATA)

    assert cache is not None and cache.name == "self.cache"
    assert cache.by_index and not cache.is_limited and not cache.throws_out


def test_its_bound_is_seen() -> None:
    filled = "self.cache[index] = decode(self.paths[index])"
    kept = _cache(_DATA.replace(filled, f"if len(self.cache) < 9:\n                    {filled}"))
    thrown = _cache(_DATA.replace(filled, f"{filled}; self.cache.popitem()"))

    assert kept is not None and kept.is_limited and not kept.throws_out
    assert thrown is not None and thrown.is_limited and thrown.throws_out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("paths, {}", "paths, Manager().dict()"),
        ("decode(", "h5py.File("),
        ("if index not in self.cache:", "if True:"),
        ("self.cache", "self.sizes"),
    ],
    ids=["shared", "a handle", "never asked", "small"],
)
def test_what_is_no_cache_of_samples(old: str, new: str) -> None:
    assert _cache(_DATA.replace(old, new)) is None


def test_what_each_sample_makes_for_itself_is_no_cache() -> None:
    text = """
        class Sentence:
            def __init__(self):
                self.layers = {}

            def tag(self, key):
                if key not in self.layers:
                    self.layers[key] = parse(key)
                return self.layers[key]

        class Images(Dataset):
            def __getitem__(self, index):
                return Sentence().tag(index)
    """

    found = code(train=textwrap.dedent(text) + "\nloader = DataLoader(Images(paths))" + textwrap.dedent(_TRAIN)).caches

    assert not found
