"""A deep model whose activations take most of the memory; tells its losses and the peak.

Word after the script's name: "still" is without dropout.
"""

from __future__ import annotations

import json
import sys

import torch
from torch import Tensor, nn

WIDTH, BLOCKS, STEPS = 512, 16, 12
DROP = 0.0 if "still" in sys.argv else 0.1


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Dropout(DROP), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.layers(self.norm(x))
        return out


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x)
        return out


torch.manual_seed(0)
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.randn(4, 8192, WIDTH, device="cuda")
losses = []
for step in range(STEPS):
    x = data[step % 4]
    optimizer.zero_grad()
    loss = (model(x) - x[:, :1]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
truth = {
    "losses": [one.item().hex() for one in losses],
    "numbers": [one.item() for one in losses],
    "peak": torch.cuda.max_memory_allocated(),
    "random": torch.rand(1, device="cuda").item(),
}
print("TRUTH", json.dumps(truth))
