"""A denoiser that works on small maps, and then refines its picture with wide kernels at full resolution.

expects: CO508
needs: either
gain: no
line: no
options: --stages
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
size, width, batch = (512, 64, 16) if device.type == "cuda" else (48, 12, 2)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.shrink = nn.Conv2d(3, width, 4, stride=4)
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.enlarge = nn.Upsample(scale_factor=4)
        self.refine = nn.Sequential(nn.Conv2d(width, width, 5, padding=2), nn.ReLU())
        self.colour = nn.Conv2d(width, 3, 1)

    def forward(self, noisy):
        hidden = self.body(self.shrink(noisy))
        if args.fixed:
            return self.colour(self.enlarge(self.refine(hidden)))
        return self.colour(self.refine(self.enlarge(hidden)))


model = Denoiser().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
clean = torch.rand(batch, 3, size, size, device=device)
noisy = clean + 0.1 * torch.randn_like(clean)
for _ in range(args.steps):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(noisy), clean)
    loss.backward()
    optimizer.step()
