"""Self-supervision in the way of BYOL: an online network predicts a slowly moving target network.

expects: other
needs: gpu
"""

# mypy: ignore-errors

import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mix = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.wide = nn.Linear(dim, 4 * dim)
        self.narrow = nn.Linear(4 * dim, dim)
        self.scale = nn.Parameter(0.1 * torch.ones(dim))

    def forward(self, x):
        x = x + self.mix(x.roll(1, dims=1))
        return x + self.scale * self.narrow(F.gelu(self.wide(self.norm(x))))


class Network(nn.Module):
    def __init__(self, dim, depth, out):
        super().__init__()
        self.patch = nn.Linear(3 * 8 * 8, dim)
        self.blocks = nn.Sequential(*(ConvNeXtBlock(dim) for _ in range(depth)))
        self.project = nn.Sequential(nn.Linear(dim, 4 * dim), nn.LayerNorm(4 * dim), nn.GELU(), nn.Linear(4 * dim, out))

    def forward(self, x):
        x = x.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        return self.project(self.blocks(self.patch(x)).mean(1))


class BYOL(nn.Module):
    def __init__(self, dim, depth, momentum=0.99):
        super().__init__()
        self.online = Network(dim, depth, 256)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.predictor = nn.Sequential(nn.Linear(256, 1024), nn.LayerNorm(1024), nn.GELU(), nn.Linear(1024, 256))
        self.momentum = momentum

    def forward(self, one, two):
        both = torch.cat([one, two])
        predicted = F.normalize(self.predictor(self.online(both)).float(), dim=1)
        with torch.no_grad():
            wanted = F.normalize(self.target(torch.cat([two, one])).float(), dim=1)
        return 2 - 2 * (predicted * wanted).sum(1).mean()

    @torch.no_grad()
    def move_target(self):
        fresh = copy.deepcopy(self.online)  # guilty
        for new, old in zip(fresh.parameters(), self.target.parameters(), strict=True):  # guilty
            new.mul_(1 - self.momentum).add_(old, alpha=self.momentum)  # guilty
        self.target = fresh.requires_grad_(False)  # guilty

    @torch.no_grad()
    def lerp_target(self):
        torch._foreach_lerp_(list(self.target.parameters()), list(self.online.parameters()), 1 - self.momentum)


def augment(x, generator):
    gain = 0.6 + 0.8 * torch.rand(len(x), 3, 1, 1, generator=generator, device=x.device)
    noise = torch.randn(x.shape, generator=generator, device=x.device)
    return x * gain + 0.1 * noise


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(41)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dim, depth, side, batch = (32, 2, 32, 4) if args.tiny else (256, 28, 96, 96)
    pictures = torch.rand(16 * batch, 3, side, side, device=device)
    model = BYOL(dim, depth).to(device)
    learned = [*model.online.parameters(), *model.predictor.parameters()]
    optimizer = torch.optim.AdamW(learned, lr=3e-4, weight_decay=1e-2, fused=True)
    generator = torch.Generator(device).manual_seed(41)
    for step in range(args.steps):
        x = pictures[step % 16 * batch : (step % 16 + 1) * batch]
        one, two = augment(x, generator), augment(x, generator)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(one, two)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if args.fixed:
            model.lerp_target()
        else:
            model.move_target()  # guilty
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
