"""A residual net on pictures that fit on the device, cropped and flipped there, in bfloat16 and channels-last.

expects: none
needs: gpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(cout), nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False) if cin != cout else nn.Identity()

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(out)) + self.skip(x), inplace=True)


def resnet(width, per_stage, classes):
    layers, cin = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()], width
    for k in range(3):
        for i in range(per_stage):
            layers.append(Block(cin, width << k, 2 if k and not i else 1))
            cin = width << k
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, classes))


class GPULoader:
    def __init__(self, n, size, batch, device):
        g = torch.Generator(device=device).manual_seed(0)
        self.images = torch.randint(0, 256, (n, 3, size + 8, size + 8), dtype=torch.uint8, device=device, generator=g)
        self.labels = torch.randint(0, 100, (n,), device=device, generator=g)
        self.size, self.batch = size, batch

    def __iter__(self):
        order = torch.randperm(len(self.labels), device=self.labels.device)
        for idx in order.split(self.batch):
            if len(idx) < self.batch:
                return
            r, c = torch.randint(0, 9, (2,)).tolist()
            x = self.images[idx, :, r : r + self.size, c : c + self.size]
            x = x.to(torch.float32, memory_format=torch.channels_last).div_(127.5).sub_(1)
            flip = torch.rand(len(idx), 1, 1, 1, device=x.device) < 0.5
            yield torch.where(flip, x.flip(3), x), self.labels[idx]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--fixed", action="store_true", help="changes nothing")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device, cuda = torch.device(args.device), args.device != "cpu"
    loader = GPULoader(20_000, 64, 512, device) if cuda else GPULoader(16, 16, 4, device)
    model = resnet(96, 2, 100) if cuda else resnet(8, 1, 100)
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9, nesterov=True, fused=cuda)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.4, total_steps=args.steps)
    step = 0
    while step < args.steps:
        for x, y in loader:
            with torch.autocast(device.type, torch.bfloat16):
                loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step >= args.steps:
                break
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
