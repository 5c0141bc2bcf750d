"""Self-distillation on wearable sensors: a student sees short crops, its moving average sees the whole window.

expects: CO514
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CHANNELS, LENGTH, PATCH, LOCAL = 6, 256, 8, 48


def make_windows(n, seed):
    rng = np.random.default_rng(seed)
    time = np.arange(LENGTH) / 32
    rate = rng.choice([0.6, 1.1, 1.7, 2.4], (n, 1, 1)) * rng.uniform(0.9, 1.1, (n, 1, 1))
    phase, gain = rng.uniform(0, 6.28, (n, CHANNELS, 1)), rng.gamma(3.0, 0.3, (n, CHANNELS, 1))
    wave = gain * np.sin(2 * np.pi * rate * time + phase)
    return torch.tensor(wave + 0.3 * rng.normal(size=wave.shape), dtype=torch.float32)


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, width=96, depth=3, prototypes=128):
        super().__init__()
        self.patch = nn.Conv1d(CHANNELS, width, PATCH, PATCH)
        self.place = nn.Parameter(0.02 * torch.randn(LENGTH // PATCH, width))
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, prototypes)

    def forward(self, x):
        x = self.patch(x).transpose(1, 2)
        x = self.blocks(x + self.place[: x.shape[1]])
        return self.head(self.norm(x).mean(1))


class Distiller:
    def __init__(self, fixed):
        self.fixed = fixed
        self.student = Encoder()
        self.teacher = copy.deepcopy(self.student)
        if fixed:
            self.teacher.requires_grad_(False)
        self.centre = torch.zeros(128)
        self.optimizer = torch.optim.AdamW(self.student.parameters(), 5e-4, weight_decay=0.02)

    def local_crops(self, windows):
        starts = torch.randint(LENGTH - LOCAL, (2,)).tolist()
        return torch.cat([windows[:, :, s : s + LOCAL] for s in starts])

    def loss(self, windows):
        noisy = windows + 0.1 * torch.randn_like(windows)
        target = self.teacher(noisy)  # guilty
        wanted = F.softmax((target - self.centre) / 0.05, 1)
        given = F.log_softmax(self.student(self.local_crops(windows)) / 0.1, 1)
        self.centre.lerp_(target.detach().mean(0), 0.1)
        return -(wanted.repeat(2, 1) * given).sum(1).mean()

    @torch.no_grad()
    def follow(self, momentum=0.99):
        teacher, student = list(self.teacher.parameters()), list(self.student.parameters())
        torch._foreach_lerp_(teacher, student, 1 - momentum)

    def step(self, windows):
        loss = self.loss(windows)
        self.optimizer.zero_grad()
        loss.backward()  # guilty
        self.optimizer.step()
        self.follow()
        return loss.detach()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=180)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(7)
    windows = make_windows(1500, 2)
    distiller = Distiller(args.fixed)
    for step in range(1, args.steps + 1):
        rows = torch.randint(len(windows), (args.batch_size,))
        loss = distiller.step(windows[rows])
        if step % 30 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
