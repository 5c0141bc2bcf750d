"""Scripts with room for as many workers as they ask for, which get more from outside: they train on, and are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.watching import Run, Watch

_SCRIPT = """
import gc, json, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

KIND, OWN = sys.argv[1], int(sys.argv[2])

class Counted(Dataset):
    def __init__(self):
        self.rows = torch.zeros(OWN + 1, dtype=torch.int64).share_memory_()
    def __len__(self):
        return 96
    def __getitem__(self, index):
        info = get_worker_info()
        time.sleep(0.002)
        if KIND == "rows":
            self.rows[0 if info is None else info.id + 1] += 1
        if KIND == "alone" and info is not None:
            raise RuntimeError("not made for workers")
        if KIND == "broken" and index == 60:
            raise RuntimeError("sample 60 is broken")
        return torch.full((4,), float(index))

SEEDS = [11, 22, 33][:OWN]
def begin(worker):
    if KIND == "seeds":
        SEEDS[worker]

torch.manual_seed(3)
data = Counted()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
losses = []
try:
    for batch in DataLoader(data, batch_size=4, num_workers=OWN, worker_init_fn=begin, shuffle=True):
        loss = model(batch).square().mean()
        loss.backward(); optimizer.step(); optimizer.zero_grad()
        losses.append(loss.item())
    truth = {"losses": losses}
except RuntimeError as error:
    truth = {"error": str(error).strip().splitlines()[-1], "steps": len(losses)}
print("TRUTH " + json.dumps(truth))
gc.freeze()  # see scripts/truth.py
"""
_FOUR = ("--remedy", "loader.workers=4")


@pytest.mark.parametrize(
    ("kind", "own", "told"),
    [
        ("rows", "2", "share the numbers 0 to 1"),
        pytest.param("seeds", "1", "share the numbers 0, which", marks=pytest.mark.variant),
        pytest.param("alone", "0", "get_worker_info() is None", marks=pytest.mark.variant),
    ],
)
def test_workers_show_numbers_that_the_script_knows(
    script: Callable[[str], Path], run_bare: Run, watch: Watch, kind: str, own: str, told: str
) -> None:
    train = script(_SCRIPT)
    bare = run_bare(train, kind, own).truth

    seen = watch(train, kind, own, options=_FOUR)

    (state,) = seen.json["remedies"]
    assert seen.truth == bare, seen.stderr
    assert state["state"] == "applied" and told in state["live"].get("worker_ids", ""), state


def test_what_fails_by_itself_fails_as_before(script: Callable[[str], Path], run_bare: Run, watch: Watch) -> None:
    train = script(_SCRIPT)
    bare = run_bare(train, "broken", "2").truth

    seen = watch(train, "broken", "2", options=_FOUR)

    assert bare["error"].endswith("sample 60 is broken")
    assert seen.truth == bare and "worker_ids" not in seen.json["remedies"][0]["live"]
