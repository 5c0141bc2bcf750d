"""Age from scans: a transformer over the patches of four-channel volumes that are held in host memory.

expects: TR201
needs: gpu
"""

# mypy: ignore-errors

import argparse
import time

import torch
import torch.nn as nn


class VolumeTransformer(nn.Module):
    def __init__(self, channels, side, patch, width, depth):
        super().__init__()
        self.patch = patch
        tokens = (side // patch) ** 3
        self.embed = nn.Linear(channels * patch**3, width)
        self.position = nn.Parameter(0.02 * torch.randn(tokens, width))
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, volume):
        p = self.patch
        patches = volume.unfold(2, p, p).unfold(3, p, p).unfold(4, p, p)
        patches = patches.permute(0, 2, 3, 4, 1, 5, 6, 7).flatten(4).flatten(1, 3)
        return self.head(self.encoder(self.embed(patches) + self.position).mean(1)).squeeze(1)


def make_scans(count, channels, side):
    """Smooth blobs with a brightness that tells the age."""
    generator = torch.Generator().manual_seed(11)
    ages = torch.rand(count, generator=generator) * 60 + 20
    axis = torch.linspace(-1, 1, side)
    radius = axis[:, None, None] ** 2 + axis[None, :, None] ** 2 + axis[None, None, :] ** 2
    texture = torch.rand(channels, side, side, side, generator=generator)
    scans = torch.empty(count, channels, side, side, side)
    for i, age in enumerate(ages):
        scans[i] = texture * torch.exp(-radius * age / 40)
    return scans, ages


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    count, side, width, depth, batch = (4, 16, 64, 1, 2) if args.tiny else (24, 128, 384, 4, 8)
    scans, ages = make_scans(count, 4, side)
    ages = ((ages - 50) / 30).to(device)
    if args.fixed and device.type == "cuda":
        scans = scans.pin_memory()

    model = VolumeTransformer(4, side, 8, width, depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05, fused=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=args.steps + 1)
    history = torch.zeros(args.steps, device=device)
    begun = time.perf_counter()
    for step in range(args.steps):
        first = step * batch % count
        volume = scans[first : first + batch]
        volume = volume.to(device, non_blocking=args.fixed)  # guilty
        with torch.autocast(device.type, dtype=torch.bfloat16):
            predicted = model(volume)
        loss = nn.functional.smooth_l1_loss(predicted.float(), ages[first : first + batch])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        history[step] = loss.detach()
    losses = history.tolist()
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} in {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
