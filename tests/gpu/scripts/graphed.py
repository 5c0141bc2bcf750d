"""A small deep model with dropout and running statistics, launched more slowly than it runs; tells its losses.

Words after the script's name: "accumulates" two passes a step, "zeroes" gradients instead of dropping them, "autocast"
around the call, "twice" calls the model before it differentiates, "inputs" have gradients, "keeps" results, "waits"
for the device within the model, "breaks" a capture by a wait that no check sees, "freezes" a layer in mid-run,
"changes" the shape now and then, "own" captures a graph of its own at the end, "penalty" differentiates a gradient;
"long" trains for more steps.
"""

from __future__ import annotations

import copy
import json
import pickle
import sys
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

STEPS = 600 if "long" in sys.argv else 120


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.BatchNorm1d(width), nn.Linear(width, width), nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.drop(self.down(torch.tanh(self.up(self.norm(x)))))
        return out


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(16, 64), *(Block(64) for _ in range(12)))
        self.head = nn.Linear(64, 1)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.blocks(x)
        if "waits" in sys.argv and inner.sum().item() > 1e30:
            inner = -inner
        if "breaks" in sys.argv:
            torch.cuda.synchronize()
        out: Tensor = self.head(inner)
        return out


def loss_of(model: Net, x: Tensor, step: int) -> Tensor:
    if "inputs" in sys.argv or "penalty" in sys.argv:
        x = x.clone().requires_grad_(True)
    # None at all without the word: one that is switched off is the script's own choice of a precision.
    with torch.autocast("cuda", torch.bfloat16) if "autocast" in sys.argv else nullcontext():
        out = model(x)
        if "twice" in sys.argv:
            out = out - model(-x)
    if "keeps" in sys.argv:
        kept.append(out)
    loss: Tensor = (out.float() - x.detach()[:, :1]).square().mean()
    if "penalty" in sys.argv and step % 40 == 39:
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        loss += gradient.square().sum()
    return loss


def own_graph() -> float:
    """The allocator and the generator are fit for a capture, and for dropout beside it."""
    static = torch.ones(64, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        nn.functional.dropout(static, 0.5)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = nn.functional.dropout(static, 0.5).sum()
    graph.replay()
    return (result + nn.functional.dropout(static, 0.5).sum()).item()


torch.manual_seed(0)
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(8, 64, 16, device="cuda")
parts = 2 if "accumulates" in sys.argv else 1
losses: list[Tensor] = []
kept: list[Any] = []
evaluated = []
for step in range(STEPS):
    if "freezes" in sys.argv and step == 100:
        model.head.requires_grad_(False)
    for part in range(parts):
        batch = data[(step + part) % 8]
        if "changes" in sys.argv and step % 10 == 9:
            batch = batch[:32]
        loss = loss_of(model, batch, step) / parts
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none="zeroes" not in sys.argv)
    losses.append(loss.detach())
    if step % 20 == 19:
        model.eval()
        with torch.no_grad():
            evaluated.append(model(data[0]).square().mean())
        model.train()
assert "_compiled_call_impl" not in vars(copy.deepcopy(model)) and pickle.dumps(model)
truth = {
    "losses": [one.item() for one in losses],
    "evaluated": [one.item() for one in evaluated],
    "kept": [one.float().sum().item() for one in kept],
    "weights": [one.double().sum().item() for one in model.parameters()],
    "statistics": [one.double().sum().item() for one in model.buffers()],
    "names": list(model.state_dict()),
    "random": torch.rand(1, device="cuda").item(),
    "own": own_graph() if "own" in sys.argv else None,
}
print("TRUTH", json.dumps(truth))
