"""A loop without any synchronisation, in PyTorch's mode that raises at the first one."""

from __future__ import annotations

import gc

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4)).cuda()
held_out = torch.randn(64, 64, device="cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(200 * 8, 64)), batch_size=8, pin_memory=True)
torch.cuda.synchronize()
torch.cuda.set_sync_debug_mode("error")
for step, (x,) in enumerate(loader):
    loss = model(x.to("cuda", non_blocking=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        model.eval()
        with torch.no_grad():
            model(held_out)
        model.train()
        gc.collect()
torch.cuda.set_sync_debug_mode("default")
print('TRUTH {"steps": 200}')
