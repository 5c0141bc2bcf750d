"""A variational autoencoder on digits-like strokes, with a small writer of its own for scalars and histograms.

expects: CA604
needs: cpu
"""

# mypy: ignore-errors
import argparse
import json
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class JsonlWriter:
    """Everything that is logged goes to one file, a line each."""

    def __init__(self, logdir):
        self.file = open(os.path.join(logdir, "events.jsonl"), "w")  # noqa: SIM115

    def _put(self, record):
        record["time"] = time.time()
        self.file.write(json.dumps(record) + "\n")  # guilty
        self.file.flush()

    def add_scalar(self, tag, value, step):
        self._put({"tag": tag, "value": float(value), "step": step})

    def add_histogram(self, tag, values, step, bins=512):
        v = values.detach().numpy().ravel()
        counts, edges = np.histogram(v, bins)  # guilty
        q = np.percentile(v, np.linspace(0, 100, 21))  # guilty
        self._put({"tag": tag, "counts": counts.tolist(), "edges": edges.tolist(), "q": q.tolist(), "step": step})

    def close(self):
        self.file.close()


def strokes(n, seed=0):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, 24).view(1, -1, 1)
    a, b, c = (torch.rand(n, 1, 2, generator=g) * 28 for _ in range(3))
    pts = ((1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c).clamp(0, 27).long()
    img = torch.zeros(n, 28, 28)
    img[torch.arange(n).view(-1, 1), pts[..., 0], pts[..., 1]] = 1.0
    return F.max_pool2d(img.unsqueeze(1), 3, 1, 1).flatten(1)


class VAE(nn.Module):
    def __init__(self, hidden=400, latent=20):
        super().__init__()
        self.fc1 = nn.Linear(784, hidden)
        self.fc21, self.fc22 = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.fc3, self.fc4 = nn.Linear(latent, hidden), nn.Linear(hidden, 784)

    def forward(self, x):
        h = F.relu(self.fc1(x))
        mu, logvar = self.fc21(h), self.fc22(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.fc4(F.relu(self.fc3(z))), mu, logvar


def loss_function(recon, x, mu, logvar):
    bce = F.binary_cross_entropy_with_logits(recon, x, reduction="sum")
    return (bce - 0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum()) / len(x)


def main():
    parser = argparse.ArgumentParser(description="VAE example")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--log-interval", type=int, default=1)
    args = parser.parse_args()
    if args.fixed:
        args.log_interval = 50
    torch.manual_seed(1)
    loader = DataLoader(TensorDataset(strokes(6000)), args.batch_size, shuffle=True, drop_last=True)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as logdir:
        writer, step = JsonlWriter(logdir), 0
        while step < args.steps:
            for (data,) in loader:
                optimizer.zero_grad()
                loss = loss_function(*[(out := model(data))[0], data, *out[1:]])
                loss.backward()
                optimizer.step()
                step += 1
                if step % args.log_interval == 0:
                    writer.add_scalar("loss", loss.item(), step)
                    for name, p in model.named_parameters():
                        writer.add_histogram(f"weights/{name}", p, step)  # guilty
                        writer.add_histogram(f"grads/{name}", p.grad, step)  # guilty
                if step >= args.steps:
                    break
            print(f"step {step} loss {loss.item():.2f}")
        writer.close()


if __name__ == "__main__":
    main()
