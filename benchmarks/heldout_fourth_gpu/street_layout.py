"""Street scenes in classes per pixel: an encoder and decoder of plain convolutions under bfloat16 autocast.

expects: CO506
needs: gpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = 19


class ConvBN(nn.Sequential):
    def __init__(self, cin, cout, stride=1):
        super().__init__(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.body = nn.Sequential(ConvBN(dim, dim), nn.Conv2d(dim, dim, 3, 1, 1, bias=False), nn.BatchNorm2d(dim))

    def forward(self, x):
        return F.relu(x + self.body(x))


class SegNet(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.stem = nn.Sequential(ConvBN(3, w, 2), ConvBN(w, w))
        self.enc1 = nn.Sequential(ConvBN(w, 2 * w, 2), Residual(2 * w), Residual(2 * w))
        self.enc2 = nn.Sequential(ConvBN(2 * w, 4 * w, 2), Residual(4 * w), Residual(4 * w))
        self.enc3 = nn.Sequential(ConvBN(4 * w, 8 * w, 2), Residual(8 * w))
        self.lat3, self.lat2 = nn.Conv2d(8 * w, 4 * w, 1), nn.Conv2d(4 * w, 4 * w, 1)
        self.lat1 = nn.Conv2d(2 * w, 4 * w, 1)
        self.smooth = nn.Sequential(ConvBN(4 * w, 2 * w), nn.Conv2d(2 * w, CLASSES, 1))

    def forward(self, x):
        x = self.stem(x)
        c1 = self.enc1(x)
        c2 = self.enc2(c1)
        p = self.lat3(self.enc3(c2))
        p = F.interpolate(p, scale_factor=2.0) + self.lat2(c2)
        p = F.interpolate(p, scale_factor=2.0) + self.lat1(c1)
        return F.interpolate(self.smooth(p), scale_factor=4.0, mode="bilinear")


class ResidentStreets:
    def __init__(self, n, h, w, device):
        g = torch.Generator(device=device).manual_seed(0)
        self.x = torch.randint(0, 256, (n, 3, h, w), device=device, dtype=torch.uint8, generator=g)
        self.y = torch.randint(0, CLASSES, (n, h // 16, w // 16), device=device, generator=g)

    def batch(self, size):
        i = torch.randint(0, len(self.x), (size,), device=self.x.device)
        y = self.y[i].repeat_interleave(16, 1).repeat_interleave(16, 2)
        return self.x[i].float().div_(255), y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device, cuda = torch.device(args.device), args.device != "cpu"
    data = ResidentStreets(64, 512, 1024, device) if cuda else ResidentStreets(4, 32, 64, device)
    layout = torch.channels_last if args.fixed else torch.contiguous_format
    model = SegNet(48 if cuda else 8).to(device, memory_format=layout)  # guilty
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=5e-4, fused=cuda)
    poly = torch.optim.lr_scheduler.PolynomialLR(optimizer, args.steps, 0.9)
    for step in range(1, args.steps + 1):
        x, y = data.batch(16 if cuda else 2)
        x = x.to(memory_format=layout)  # guilty
        with torch.autocast(device.type, torch.bfloat16):
            loss = F.cross_entropy(model(x), y)  # guilty
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        poly.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
