"""Four dense tasks on indoor pictures share one trunk: depth, normals, rooms and edges.

expects: other
needs: gpu
"""

# mypy: ignore-errors

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

ROOMS = 13


def double(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, 1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, 1, 1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class Trunk(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.stages = nn.ModuleList([double(3, w, 2), double(w, 2 * w, 2), double(2 * w, 4 * w, 2)])
        self.deep = nn.Sequential(*(double(4 * w, 4 * w) for _ in range(4)))
        self.lateral = nn.ModuleList([nn.Conv2d(2 * w, w, 1), nn.Conv2d(4 * w, w, 1)])
        self.smooth = double(w, w)

    def forward(self, x):
        fine = self.stages[0](x)
        middle = self.stages[1](fine)
        coarse = self.deep(self.stages[2](middle))
        y = self.lateral[0](middle) + F.interpolate(self.lateral[1](coarse), scale_factor=2.0)
        return self.smooth(fine + F.interpolate(y, scale_factor=2.0))


class MultiTask(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.trunk = Trunk(width)
        outputs = {"depth": 1, "normals": 3, "rooms": ROOMS, "edges": 1}
        self.heads = nn.ModuleDict({name: nn.Conv2d(width, n, 1) for name, n in outputs.items()})

    def forward(self, x):
        shared = self.trunk(x)
        return {name: head(shared).float() for name, head in self.heads.items()}


def losses_of(out, target):
    return {
        "depth": F.l1_loss(out["depth"], target["depth"]),
        "normals": 1 - F.cosine_similarity(out["normals"], target["normals"], dim=1).mean(),
        "rooms": F.cross_entropy(out["rooms"], target["rooms"]),
        "edges": F.binary_cross_entropy_with_logits(out["edges"], target["edges"]),
    }


WEIGHTS = {"depth": 1.0, "normals": 0.5, "rooms": 1.0, "edges": 2.0}


def backward(losses, fixed):
    if fixed:
        sum(WEIGHTS[name] * loss for name, loss in losses.items()).backward()
        return
    for name, loss in losses.items():  # guilty
        (WEIGHTS[name] * loss).backward(retain_graph=True)  # guilty


def make_scenes(count, side, device):
    generator = torch.Generator(device).manual_seed(60)
    half = side // 2

    def blocks(channels):
        return torch.rand(count, channels, half // 8, half // 8, generator=generator, device=device)

    depth = F.interpolate(blocks(1), size=half, mode="bilinear")
    normals = F.normalize(F.interpolate(blocks(3) - 0.5, size=half, mode="bilinear"), dim=1)
    rooms = (F.interpolate(blocks(1), size=half).squeeze(1) * ROOMS).long()
    edges = (depth - F.avg_pool2d(depth, 3, 1, 1)).abs().gt(0.01).float()
    pictures = F.interpolate(torch.cat([depth, normals[:, :2]], 1), size=side).contiguous(
        memory_format=torch.channels_last
    )
    return pictures, {"depth": depth, "normals": normals, "rooms": rooms, "edges": edges}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(60)
    torch.backends.cudnn.benchmark = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    side, width, batch = (64, 8, 2) if args.tiny else (256, 64, 40)
    pictures, targets = make_scenes(4 * batch, side, device)
    model = MultiTask(width).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    for step in range(args.steps):
        part = slice(step % 4 * batch, (step % 4 + 1) * batch)
        with torch.autocast(device, dtype=torch.bfloat16):
            out = model(pictures[part])
        losses = losses_of(out, {name: t[part] for name, t in targets.items()})
        optimizer.zero_grad(set_to_none=True)
        backward(losses, args.fixed)  # guilty
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}", {name: round(loss.item(), 3) for name, loss in losses.items()})


if __name__ == "__main__":
    main()
