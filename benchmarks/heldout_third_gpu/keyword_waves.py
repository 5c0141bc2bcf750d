"""Keyword spotting on raw waveforms with a strided convolutional front end.

expects: TR205, TR206
needs: gpu
"""

# mypy: ignore-errors

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def record(count, samples, classes):
    """Recordings as a 16-bit device would store them."""
    rng = np.random.default_rng(12)
    labels = rng.integers(0, classes, count)
    time = np.arange(samples, dtype=np.float32) / 16000
    tones = np.stack([np.sin(2 * np.pi * (200 + 40 * c) * time) for c in range(classes)])
    noise = rng.integers(-3000, 3000, samples + count, dtype=np.int16)
    waves = np.empty((count, samples), dtype=np.int16)
    for i, label in enumerate(labels):
        waves[i] = noise[i : i + samples] + (8000 * tones[label]).astype(np.int16)
    return waves, labels


class WaveNetLike(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.front = nn.Conv1d(1, width, 64, stride=32, padding=16)
        self.norm = nn.GroupNorm(8, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 8, stride=4, padding=2) for _ in range(2))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, wave):
        x = F.gelu(self.norm(self.front(wave[:, None])))
        for conv in self.convs:
            x = F.gelu(conv(x))
        return self.head(self.encoder(x.transpose(1, 2)).mean(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(12)
    torch.backends.cudnn.benchmark = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    count, samples, width, batch = (8, 4096, 64, 4) if args.tiny else (1536, 64000, 128, 384)
    waves, labels = record(count, samples, 32)
    if args.fixed:
        waves = torch.from_numpy(waves)
    else:
        waves = torch.from_numpy(waves / 32768)  # guilty
    if device == "cuda":
        waves = waves.pin_memory()
    labels = torch.from_numpy(labels).to(device)
    model = WaveNetLike(width, 32).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    correct = torch.zeros((), device=device)
    for step in range(args.steps):
        first = step * batch % count
        wave = waves[first : first + batch].to(device, non_blocking=True)  # guilty
        wave = wave.float().div_(32768) if args.fixed else wave.float()  # guilty
        target = labels[first : first + batch]
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(wave)
        loss = F.cross_entropy(logits.float(), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        correct += (logits.argmax(1) == target).sum()
        if (step + 1) % 175 == 0:
            print(f"step {step + 1} loss {loss.item():.3f} accuracy {correct.item() / (175 * batch):.3f}")
            correct.zero_()


if __name__ == "__main__":
    main()
