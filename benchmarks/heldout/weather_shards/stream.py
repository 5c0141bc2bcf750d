"""Compressed shards of weather records, read one after the other."""

# mypy: ignore-errors
import io
import zlib

import numpy as np
from torch.utils.data import IterableDataset


def write_shards(folder, shards, records, stations, hours):
    rng = np.random.default_rng(12)
    for number in range(shards):
        walk = rng.normal(size=(records, hours + 1, stations)).cumsum(axis=1).astype(np.float32).round(1)
        buffer = io.BytesIO()
        np.save(buffer, walk)
        (folder / f"shard-{number:03d}.z").write_bytes(zlib.compress(buffer.getvalue(), 1))


class ShardStream(IterableDataset):
    """Opens a shard, turns values into ranks, shuffles, then hands out its records."""

    def __init__(self, folder, passes, seed=0):
        self.paths = sorted(folder.glob("shard-*.z"))
        self.passes, self.seed = passes, seed

    def _open(self, path, rng):
        walk = np.load(io.BytesIO(zlib.decompress(path.read_bytes())))
        flat = walk.reshape(-1, walk.shape[-1])
        ranks = flat.argsort(axis=0).argsort(axis=0) / len(flat)
        return ranks.reshape(walk.shape)[rng.permutation(len(walk))].astype(np.float32)

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        for path in self.paths * self.passes:
            for record in self._open(path, rng):
                yield record[:-1].reshape(-1), record[-1]
