"""BYOL on pairs of nearby video frames: two views through an online network and through its moving average.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE = 48


def make_videos(n, frames, seed):
    """Discs that drift over a textured ground."""
    g = torch.Generator().manual_seed(seed)
    line = torch.linspace(-1, 1, SIZE)
    yy, xx = torch.meshgrid(line, line, indexing="ij")
    ground = F.interpolate(torch.rand(n, 3, 6, 6, generator=g), size=SIZE, mode="bilinear")
    place, speed = torch.rand(n, 2, generator=g) - 0.5, 0.06 * torch.randn(n, 2, generator=g)
    radius, colour = 0.15 + 0.25 * torch.rand(n, 1, 1, generator=g), torch.rand(n, 3, 1, 1, generator=g)
    video = []
    for t in range(frames):
        y, x = (place + t * speed)[..., None, None].unbind(1)
        disc = (((yy - y) ** 2 + (xx - x) ** 2) < radius**2).float().unsqueeze(1)
        video.append((1 - disc) * ground + disc * colour)
    return torch.stack(video, 1)


class Encoder(nn.Module):
    def __init__(self, width=24, out=96):
        super().__init__()
        layers, i = [], 3
        for o in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
            layers += [nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
            i = o
        self.body = nn.Sequential(*layers)
        self.project = nn.Sequential(nn.Linear(i, 2 * out), nn.BatchNorm1d(2 * out), nn.ReLU(), nn.Linear(2 * out, out))

    def forward(self, x):
        return self.project(self.body(x).mean((2, 3)))


class BYOL(nn.Module):
    def __init__(self, decay=0.99):
        super().__init__()
        self.online, self.decay = Encoder(), decay
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.predict = nn.Sequential(nn.Linear(96, 192), nn.BatchNorm1d(192), nn.ReLU(), nn.Linear(192, 96))

    def forward(self, a, b):
        pa, pb = self.predict(self.online(a)), self.predict(self.online(b))
        with torch.no_grad():
            ta, tb = self.target(a), self.target(b)
        return 2 - F.cosine_similarity(pa, tb).mean() - F.cosine_similarity(pb, ta).mean()

    @torch.no_grad()
    def follow(self):
        torch._foreach_lerp_(list(self.target.parameters()), list(self.online.parameters()), 1 - self.decay)


def views(videos, rows, first, second, g):
    a, b = videos[rows, first], videos[rows, second]
    gain = 0.7 + 0.6 * torch.rand(2, len(rows), 3, 1, 1, generator=g)
    if torch.rand((), generator=g) < 0.5:
        b = b.flip(-1)
    return a * gain[0], b * gain[1]


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=220)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(27)
    g = torch.Generator().manual_seed(2)
    videos = make_videos(160, 8, 7)
    model = BYOL()
    optimizer = torch.optim.AdamW([*model.online.parameters(), *model.predict.parameters()], 1e-3)
    for step in range(1, args.steps + 1):
        rows = torch.randint(0, len(videos), (args.batch,), generator=g)
        first = torch.randint(0, 8, (args.batch,), generator=g)
        second = (first + torch.randint(-2, 3, (args.batch,), generator=g)).clamp(0, 7)
        loss = model(*views(videos, rows, first, second, g))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.follow()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
