"""The sequences of one round of training, and the table each reader needs."""

# mypy: ignore-errors

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

LETTERS = 20


def substitution_table(size: int = 26) -> np.ndarray:
    """Log-odds of one residue in place of another, by power iteration of the mutation matrix."""
    rng = np.random.default_rng(0)
    step = rng.dirichlet(np.ones(size), size)
    table = np.eye(size)
    for _ in range(1000):
        for row in range(size):
            table[row] = table[row] @ step
            table[row] /= table[row].sum()
    return np.log(table[:LETTERS, :LETTERS] + 1e-6).astype(np.float32)


class Sequences(Dataset):
    def __init__(self, count: int, length: int, families: int):
        rng = np.random.default_rng(1)
        self.residues = rng.integers(0, LETTERS, (count, length))
        self.families = rng.integers(0, families, count)
        self.table = None

    def __len__(self):
        return len(self.residues)

    def __getitem__(self, index):
        profile = self.table[self.residues[index]]
        return torch.from_numpy(profile.T.copy()), int(self.families[index])


def prepare_reader(_: int) -> None:
    get_worker_info().dataset.table = substitution_table()


class ProteinData:
    def __init__(self, settings: dict, keep_readers: bool = False):
        self.dataset = Sequences(320, settings["length"], settings["families"])
        options = dict(settings["loader"], persistent_workers=keep_readers)
        self.loader = DataLoader(self.dataset, shuffle=True, worker_init_fn=prepare_reader, **options)  # guilty

    def rounds(self, steps: int):
        """Batches, round after round, with the number of the round."""
        for number in range(-(-steps // len(self.loader))):
            for batch in self.loader:
                yield number, batch
