"""A residual network in bfloat16 on random crops of pictures that are held on the device.

expects: CO506
needs: gpu
line: no
"""

# mypy: ignore-errors

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        skip = x if self.down is None else self.down(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(x)) + skip, inplace=True)


class ResNet(nn.Module):
    def __init__(self, base, classes):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, base, 7, 2, 3, bias=False), nn.BatchNorm2d(base), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)
        )
        blocks, width = [], base
        for stage in range(4):
            out = base * 2**stage
            blocks += [BasicBlock(width, out, 1 if stage == 0 else 2), BasicBlock(out, out)]
            width = out
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


class Crops:
    """Batches of crops, with the same corner for all pictures of a batch."""

    def __init__(self, count, side, crop, batch):
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.pictures = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, device=device)
        self.labels = torch.randint(0, 200, (count,), device=device)
        self.crop, self.batch, self.room = crop, batch, side - crop
        self.host = torch.Generator().manual_seed(6)

    def __iter__(self):
        for first in range(0, len(self.pictures) - self.batch + 1, self.batch):
            top, left = torch.randint(0, self.room, (2,), generator=self.host).tolist()
            x = self.pictures[first : first + self.batch, :, top : top + self.crop, left : left + self.crop]
            yield x.to(torch.bfloat16).contiguous() / 128 - 1, self.labels[first : first + self.batch]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--tiny", action="store_true")
    opts = ap.parse_args()
    torch.manual_seed(6)
    torch.backends.cudnn.benchmark = True
    crops = Crops(16, 40, 32, 8) if opts.tiny else Crops(4096, 144, 128, 512)
    device = crops.labels.device
    net = ResNet(8 if opts.tiny else 64, 200).to(device)
    if opts.fixed:
        net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9, weight_decay=5e-4, fused=True)
    done, epoch = 0, 0
    while done < opts.steps:
        for x, y in crops:
            if opts.fixed:
                x = x.contiguous(memory_format=torch.channels_last)
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            done += 1
            if done == opts.steps:
                break
        epoch += 1
        if epoch % 20 == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
