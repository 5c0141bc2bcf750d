"""A variational autoencoder of digit-like strokes that keeps a diary of its weights and reconstructions.

expects: CA604
needs: cpu
"""

# mypy: ignore-errors
import argparse
import json
import tempfile
from pathlib import Path

import torch
from PIL import Image
from torch import nn

SIDE = 32


def strokes(count):
    generator = torch.Generator().manual_seed(20)
    points = torch.rand(count, 4, 2, generator=generator) * 2 - 1
    axis = torch.linspace(-1, 1, SIDE)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).view(1, 1, -1, 2)
    return (-20 * (grid - points[:, :, None]).pow(2).sum(-1)).exp().amax(1)


class VAE(nn.Module):
    def __init__(self, hidden=384, code=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(SIDE * SIDE, hidden), nn.ReLU(), nn.Linear(hidden, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, SIDE * SIDE))

    def forward(self, x):
        mean, log_var = self.encoder(x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (log_var / 2).exp()
        divergence = (mean**2 + log_var.exp() - 1 - log_var).sum(1) / 2
        return self.decoder(code), divergence


class Diary:
    def __init__(self, folder, every):
        self.folder, self.every = folder, every
        self.lines = (folder / "weights.jsonl").open("w")

    def write(self, step, model, images, logits):
        if step % self.every:
            return
        for name, weight in model.named_parameters():
            counts = torch.histc(weight.detach(), bins=64).int().tolist()  # guilty
            self.lines.write(json.dumps({"step": step, "name": name, "counts": counts}) + "\n")
        pairs = torch.cat([images[:16], logits[:16].detach().sigmoid()]).view(2, 16, SIDE, SIDE)
        sheet = (pairs.permute(0, 2, 1, 3).reshape(2 * SIDE, 16 * SIDE) * 255).byte()
        Image.fromarray(sheet.numpy()).save(self.folder / f"{step:05d}.png")  # guilty


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=11)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(20)
    torch.set_num_threads(1)
    images, model = strokes(1600), VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    with tempfile.TemporaryDirectory() as folder:
        diary = Diary(Path(folder), every=100 if args.fixed else 1)
        step = 0
        for epoch in range(args.epochs):
            for batch in images[torch.randperm(len(images))].split(64):
                logits, divergence = model(batch)
                fit = nn.functional.binary_cross_entropy_with_logits(logits, batch, reduction="none").sum(1)
                loss = (fit + divergence).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                diary.write(step, model, batch, logits)  # guilty
                step += 1
            print(f"epoch {epoch} bound {loss.item():.2f}")


if __name__ == "__main__":
    main()
