"""Learns the joint density of flow meters in a water network with a normalising flow of affine couplings.

expects: CA603
needs: cpu
"""

# mypy: ignore-errors
import argparse
import hashlib
import io
import os
import shutil
import tempfile

import torch
from torch import nn

METERS = 64


def make_readings(count, seed):
    """Few demands drive many meters, some of them saturate."""
    g = torch.Generator().manual_seed(seed)
    demand = torch.randn(count, 8, generator=g)
    demand[:, 1:] += 0.6 * demand[:, :1] ** 2
    pipes = torch.randn(8, METERS, generator=g) / 3
    flow = demand @ pipes
    flow[:, ::4] = torch.tanh(2 * flow[:, ::4])
    return flow + 0.1 * torch.randn(count, METERS, generator=g)


class Coupling(nn.Module):
    def __init__(self, width, flip):
        super().__init__()
        self.flip = flip
        half = METERS // 2
        self.net = nn.Sequential(
            nn.Linear(half, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2 * half)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x.chunk(2, 1)
        if self.flip:
            a, b = b, a
        scale, shift = self.net(a).chunk(2, 1)
        scale = 2 * torch.tanh(scale / 2)
        b = b * scale.exp() + shift
        return torch.cat([b, a] if self.flip else [a, b], 1), scale.sum(1)


class Flow(nn.Module):
    def __init__(self, depth=8, width=384):
        super().__init__()
        self.couplings = nn.ModuleList(Coupling(width, flip=bool(k % 2)) for k in range(depth))
        self.register_buffer("order", torch.stack([torch.randperm(METERS) for _ in range(depth)]))

    def log_density(self, x):
        volume = 0.0
        for order, coupling in zip(self.order, self.couplings):
            x, part = coupling(x[:, order])
            volume = volume + part
        return volume - 0.5 * (x.square() + 1.8379).sum(1)


class Average:
    def __init__(self, model, decay=0.995):
        self.decay = decay
        self.values = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self, model):
        torch._foreach_lerp_(self.values, list(model.parameters()), 1 - self.decay)


class Keeper:
    """Writes the state of the run, and keeps the last few of them."""

    def __init__(self, folder, every, last=3):
        self.folder, self.every, self.last = folder, every, last
        self.written, self.digests = [], {}

    def __call__(self, step, model, average, optimizer):
        if step % self.every:
            return
        path = os.path.join(self.folder, f"flow_{step:06d}.pt")
        state = {
            "step": step,
            "model": model.state_dict(),
            "average": average.values,
            "optimizer": optimizer.state_dict(),
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)  # guilty
        digest = hashlib.sha256(buffer.getbuffer()).hexdigest()  # guilty
        with open(path + ".part", "wb") as out:
            out.write(buffer.getbuffer())  # guilty
            os.fsync(out.fileno())  # guilty
        os.replace(path + ".part", path)
        self.written.append(path)
        self.digests[path] = digest
        while len(self.written) > self.last:
            os.remove(self.written.pop(0))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=32)
    args = cli.parse_args()
    torch.manual_seed(13)

    folder = tempfile.mkdtemp(prefix="meters_")
    try:
        readings = make_readings(20_000, 23)
        model = Flow()
        optimizer = torch.optim.Adam(model.parameters(), 5e-4)
        average = Average(model)
        keep = Keeper(folder, every=200 if args.fixed else 4)  # guilty
        for step in range(1, args.steps + 1):
            batch = readings[torch.randint(len(readings), (args.batch_size,))]
            loss = -model.log_density(batch).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 20.0)
            optimizer.step()
            average.update(model)
            keep(step, model, average, optimizer)  # guilty
            if step % 50 == 0:
                print(f"step {step} nats {loss.item():.2f}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
