"""Redundancy reduction between two views: the cross-correlation of wide projections is driven to the identity.

expects: other
needs: gpu
"""

# mypy: ignore-errors

import argparse

import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        steps, cin = [], 3
        for i, stride in enumerate((2, 1, 2, 1, 2, 1, 2, 1)):
            cout = width * 2 ** (i // 2)
            steps += [nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)]
            cin = cout
        self.convs = nn.Sequential(*steps)
        self.projector = nn.Sequential(
            nn.Linear(cin, out), nn.BatchNorm1d(out), nn.ReLU(inplace=True), nn.Linear(out, out, bias=False)
        )

    def forward(self, x):
        return self.projector(self.convs(x).mean((2, 3)))


class CrossCorrelation(nn.Module):
    def __init__(self, weight, dtype):
        super().__init__()
        self.weight, self.dtype = weight, dtype

    def standardised(self, z):
        z = z.to(self.dtype)  # guilty
        return (z - z.mean(0)) / (z.std(0) + 1e-5)  # guilty

    def forward(self, z1, z2):
        z1, z2 = self.standardised(z1), self.standardised(z2)  # guilty
        c = z1.T @ z2 / len(z1)  # guilty
        on_diagonal = (c.diagonal() - 1).square().sum()
        off_diagonal = c.square().sum() - c.diagonal().square().sum()  # guilty
        return (on_diagonal + self.weight * off_diagonal).float()


class Views:
    def __init__(self, count, side, device):
        self.generator = torch.Generator(device).manual_seed(55)
        shape = (count, 3, side, side)
        self.pictures = torch.randint(0, 256, shape, generator=self.generator, device=device, dtype=torch.uint8)

    def view(self, x):
        x = x.float() / 255
        contrast = 0.5 + torch.rand(len(x), 1, 1, 1, generator=self.generator, device=x.device)
        x = x * contrast + 0.05 * torch.randn(x.shape, generator=self.generator, device=x.device)
        return x.flip(3).contiguous(memory_format=torch.channels_last)

    def pair(self, step, batch):
        first = step * batch % len(self.pictures)
        x = self.pictures[first : first + batch]
        return self.view(x), self.view(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=330)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(55)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    side, width, out, batch = (16, 4, 32, 8) if args.tiny else (64, 64, 8192, 1024)
    views = Views(4 * batch, side, device)
    model = Backbone(width, out).to(device, memory_format=torch.channels_last)
    criterion = CrossCorrelation(0.005, torch.float32 if args.fixed else torch.float64)  # guilty
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True)
    for step in range(args.steps):
        one, two = views.pair(step, batch)
        with torch.autocast(device, dtype=torch.bfloat16):
            z1, z2 = model(one), model(two)
        with torch.autocast(device, enabled=False):
            loss = criterion(z1, z2)  # guilty
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
