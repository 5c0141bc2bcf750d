"""A model of parts that are hard to time: shared, checkpointed, in place, with tuples, dicts and keywords, frozen.

Every few steps the model is evaluated, copied and pickled. Prints each loss to the bit, and what is left behind.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import io
import json
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Pair(nn.Module):
    """Takes keywords, returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, *, x: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self.left(x) * scale, self.right(x)


class Named(nn.Module):
    """Takes a tuple, returns a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, pair: tuple[torch.Tensor, torch.Tensor]) -> dict[str, Any]:
        return {"sum": self.layer(pair[0] + pair[1]), "nothing": None}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(16, 32)
        self.stem = nn.Linear(32, 32)
        self.act = nn.ReLU(inplace=True)
        self.pair, self.named = Pair(), Named()
        self.shared = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.1), nn.ReLU(inplace=True))
        self.new_checkpoint = nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.2), nn.Linear(64, 32))
        self.old_checkpoint = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.head = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = self.frozen(x)
        x = self.act(self.stem(x))
        x = self.shared(self.named(self.pair(x=x, scale=0.5))["sum"])
        x = x + checkpoint(self.new_checkpoint, x, use_reentrant=False)
        x = checkpoint(self.old_checkpoint, x, use_reentrant=True)
        return self.head(self.shared(x))


model = Model().to(device)
model.frozen.requires_grad_(False)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
STEPS = 240  # on a busy machine a sample is dearer, and there are fewer of them
data = TensorDataset(torch.randn(STEPS * 8, 16), torch.randint(0, 4, (STEPS * 8,)))
losses = []
for step, (x, y) in enumerate(DataLoader(data, batch_size=8)):
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    if step % 5 == 0:
        # In the middle of a step, when hooks may be there.
        twin = copy.deepcopy(model)
        torch.save(model, io.BytesIO())
        twin(x.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item().hex())
    if step % 7 == 0:
        model.eval()
        with torch.no_grad():
            model(x.to(device))
        model.train()

weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
print("LOSSES " + json.dumps(losses))
print("loss " + hashlib.sha256(weights).hexdigest())
print("TRUTH " + json.dumps({"steps": STEPS, "hooks": hooks, "random": torch.rand(1).item().hex()}))
gc.freeze()  # see truth.py
