"""Synchronisations nobody wrote down, while the script turns every warning into an error."""

from __future__ import annotations

import json
import time
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(64, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
repeats = torch.tensor([1, 2, 3, 2], device="cuda")
warnings.filterwarnings("error")
filters = list(warnings.filters)
show = warnings.showwarning
for (x,) in DataLoader(TensorDataset(torch.randn(60 * 8, 64)), batch_size=8):
    out = model(x.cuda())
    positive = out[out > 0]  # SITE mask
    places = out.nonzero()  # SITE nonzero
    rows = torch.where(out > 0)  # SITE where
    many = torch.repeat_interleave(out.sum(0), repeats)  # SITE repeat
    loss = positive.sum() + many.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.002)
for _ in range(3):  # a window may still be open at the end of the last step; it closes with one of these
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
torch.cuda.synchronize()
state = {
    "steps": 63,
    "mode": torch.cuda.get_sync_debug_mode(),
    "filters": warnings.filters == filters,
    "show": warnings.showwarning is show,
}
print("TRUTH " + json.dumps(state))
