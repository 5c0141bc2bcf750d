"""Writes what training scripts write, by the libraries they write with, and reads it back."""

from __future__ import annotations

import os
import sqlite3
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Cached(Dataset[torch.Tensor]):
    """Keeps each sample in a file when it was first made, as many do."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        path = f"{self.folder}/{index}.npy"
        if not os.path.exists(path):
            np.save(path, np.full(3, index, dtype=np.float32))
        return torch.from_numpy(np.load(path))


def checkpoints(model: torch.nn.Module) -> None:
    # Not above: a worker that is spawned would import it too.
    import pyarrow
    from pyarrow import parquet
    from safetensors.torch import load_file, save_file

    assert torch.load("best.pt") == {"epoch": 1}
    for name, new_format in (("best.pt", True), ("old format.pt", False), ("modèle.pt", True)):
        torch.save(model.state_dict(), f"{name}.tmp", _use_new_zipfile_serialization=new_format)
        os.replace(f"{name}.tmp", name)
        model.load_state_dict(torch.load(name))
    model.load_state_dict(torch.load("best.pt", mmap=True))
    torch.jit.script(model).save("script.pt")
    torch.jit.load("script.pt")
    save_file(model.state_dict(), "model.safetensors")
    model.load_state_dict(load_file("model.safetensors"))
    parquet.write_table(pyarrow.table({"loss": [1.0, 2.0]}), "losses.parquet")
    assert parquet.read_table("losses.parquet").num_rows == parquet.ParquetFile("losses.parquet").metadata.num_rows == 2


def logs() -> None:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter("runs/now")
    writer.add_scalar("loss", 1.0, 1)
    writer.close()
    assert len(os.listdir("runs/now")) == 1 and sorted(os.listdir("runs")) == ["earlier", "now"]
    with torch.profiler.profile() as profile:
        torch.ones(3).sum()
    profile.export_chrome_trace("trace.json")
    assert os.path.getsize("trace.json") > 0
    database = sqlite3.connect("runs.db")
    database.execute("insert into runs values (2)")
    database.commit()
    database.close()
    assert sqlite3.connect("file:runs.db?mode=ro", uri=True).execute("select * from runs").fetchall() == [(1,), (2,)]


def arrays() -> None:
    mapped = np.memmap("array.bin", dtype=np.uint8, mode="r+")
    mapped[0] = 9
    mapped.flush()
    assert np.fromfile("array.bin", dtype=np.uint8).tolist() == [9, 2, 3]
    np.arange(3, dtype=np.uint8).tofile("made.bin")
    np.savez("made.npz", a=np.ones(2))
    assert np.load("made.npz")["a"].tolist() == [1, 1]


def workers(start: str) -> None:
    """What the trainer has written, a worker reads, and the other way round."""
    data = Cached(f"cache_{start}")
    np.save(f"cache_{start}/0.npy", np.full(3, 7, dtype=np.float32))
    loader = DataLoader(data, batch_size=2, num_workers=1, multiprocessing_context=start)
    assert [batch[:, 0].tolist() for batch in loader] == [[7, 1], [2, 3]]
    assert sorted(os.listdir(f"cache_{start}")) == ["0.npy", "1.npy", "2.npy", "3.npy"]
    assert np.load(f"cache_{start}/3.npy")[0] == 3


if __name__ == "__main__":
    checkpoints(torch.nn.Linear(2, 2))
    logs()
    arrays()
    for way in sys.argv[1:]:
        workers(way)
    print("all as it should be")
