"""A denoising U-Net with an exponential average of its weights, updated for all parameters at once.

expects: none
needs: gpu
"""

# mypy: ignore-errors
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class ResBlock(nn.Module):
    def __init__(self, cin, cout, temb):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, cin), nn.Conv2d(cin, cout, 3, 1, 1)
        self.norm2, self.conv2 = nn.GroupNorm(8, cout), nn.Conv2d(cout, cout, 3, 1, 1)
        self.temb = nn.Linear(temb, cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.temb(t)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self, w):
        super().__init__()
        temb = 4 * w
        self.time = nn.Sequential(nn.Linear(1, temb), nn.SiLU(), nn.Linear(temb, temb))
        self.inp = nn.Conv2d(3, w, 3, 1, 1)
        self.d1, self.d2 = ResBlock(w, w, temb), ResBlock(w, 2 * w, temb)
        self.m1, self.m2 = ResBlock(2 * w, 4 * w, temb), ResBlock(4 * w, 4 * w, temb)
        self.u2, self.u1 = ResBlock(6 * w, 2 * w, temb), ResBlock(3 * w, w, temb)
        self.out = nn.Sequential(nn.GroupNorm(8, w), nn.SiLU(), nn.Conv2d(w, 3, 3, 1, 1))

    def forward(self, x, t):
        t = self.time(t.unsqueeze(1))
        a = self.d1(self.inp(x), t)
        b = self.d2(F.avg_pool2d(a, 2), t)
        c = self.m2(self.m1(F.avg_pool2d(b, 2), t), t)
        c = self.u2(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1), t)
        return self.out(self.u1(torch.cat([F.interpolate(c, scale_factor=2.0), a], 1), t))


@torch.no_grad()
def update_average(average, model, decay):
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true", help="changes nothing")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device, cuda = torch.device(args.device), args.device != "cpu"
    width, size, batch = (160, 64, 128) if cuda else (8, 16, 2)
    model = UNet(width).to(device, memory_format=torch.channels_last)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-4, fused=cuda)
    data = torch.randn(1024 if cuda else 8, 3, size, size, device=device).to(memory_format=torch.channels_last)
    for step in range(1, args.steps + 1):
        x = data[torch.randint(0, len(data), (batch,), device=device)]
        t = torch.rand(batch, device=device)
        noise = torch.randn_like(x)
        level = (t * torch.pi / 2).view(-1, 1, 1, 1)
        with torch.autocast(device.type, torch.bfloat16):
            guess = model(torch.cos(level) * x + torch.sin(level) * noise, t)
        loss = F.mse_loss(guess.float(), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        update_average(average, model, min(0.999, step / (step + 10)))
        if step % 50 == 0:
            print(f"step {step} mse {loss.item():.4f}")


if __name__ == "__main__":
    main()
