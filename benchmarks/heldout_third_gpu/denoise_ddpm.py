"""Denoising diffusion with a small U-Net with attention, and an average of the weights.

expects: none
needs: gpu
"""

# mypy: ignore-errors

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class TimeBlock(nn.Module):
    def __init__(self, cin, cout, time_dim):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.shift = nn.Linear(time_dim, cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        h = F.relu(self.bn1(self.conv1(x)) + self.shift(t)[..., None, None], inplace=True)
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x), inplace=True)


class Attend(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.heads = max(1, channels // 64)
        self.norm = nn.LayerNorm(channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x):
        b, c, h, w = x.shape
        tokens = x.permute(0, 2, 3, 1).reshape(b, h * w, c)
        q, k, v = self.qkv(self.norm(tokens)).view(b, h * w, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, h * w, c)
        return x + self.out(y).view(b, h, w, c).permute(0, 3, 1, 2)


class DenoisingUNet(nn.Module):
    def __init__(self, w):
        super().__init__()
        t = 4 * w
        self.register_buffer("frequencies", torch.exp(-math.log(10000) * torch.arange(w // 2) / (w // 2)))
        self.time = nn.Sequential(nn.Linear(w, t), nn.SiLU(), nn.Linear(t, t))
        self.enter = nn.Conv2d(3, w, 3, padding=1)
        self.down1, self.down2 = TimeBlock(w, w, t), TimeBlock(w, 2 * w, t)
        self.middle1, self.attend, self.middle2 = TimeBlock(2 * w, 4 * w, t), Attend(4 * w), TimeBlock(4 * w, 2 * w, t)
        self.up2, self.up1 = TimeBlock(4 * w, w, t), TimeBlock(2 * w, w, t)
        self.leave = nn.Conv2d(w, 3, 3, padding=1)

    def forward(self, x, t):
        angle = t[:, None] * self.frequencies
        t = self.time(torch.cat([angle.sin(), angle.cos()], dim=1))
        a = self.down1(self.enter(x), t)
        b = self.down2(F.avg_pool2d(a, 2), t)
        c = self.middle2(self.attend(self.middle1(F.avg_pool2d(b, 2), t)), t)
        b = self.up2(torch.cat([b, F.interpolate(c, scale_factor=2.0)], dim=1), t)
        return self.leave(self.up1(torch.cat([a, F.interpolate(b, scale_factor=2.0)], dim=1), t))


class Diffusion:
    def __init__(self, timesteps, device):
        betas = torch.linspace(1e-4, 0.02, timesteps, device=device)
        kept = torch.cumprod(1 - betas, dim=0)
        self.signal, self.noise, self.timesteps = kept.sqrt(), (1 - kept).sqrt(), timesteps

    def loss(self, model, x):
        t = torch.randint(self.timesteps, (len(x),), device=x.device)
        noise = torch.randn_like(x)
        noisy = self.signal[t][:, None, None, None] * x + self.noise[t][:, None, None, None] * noise
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            predicted = model(noisy, t)
        return F.mse_loss(predicted.float(), noise)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=420)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(91)
    torch.backends.cudnn.benchmark = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    width, side, batch = (16, 16, 2) if args.tiny else (128, 64, 128)
    coarse = torch.rand(8 * batch, 3, 8, 8, device=device) * 2 - 1
    pictures = F.interpolate(coarse, size=side, mode="bilinear").contiguous(memory_format=torch.channels_last)
    model = DenoisingUNet(width).to(device, memory_format=torch.channels_last)
    weights = list(model.parameters())
    average = [p.detach().clone() for p in weights]
    diffusion = Diffusion(1000, device)
    optimizer = torch.optim.AdamW(weights, lr=2e-4, fused=True)
    for step in range(args.steps):
        x = pictures[step % 8 * batch : (step % 8 + 1) * batch]
        loss = diffusion.loss(model, x)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(average, weights, 0.001)
        if step % 100 == 99:
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
