"""A small U-Net."""

# mypy: ignore-errors
import torch
import torch.nn as nn


def double(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        w = width
        self.down1, self.down2, self.mid = double(1, w), double(w, 2 * w), double(2 * w, 4 * w)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), nn.ConvTranspose2d(2 * w, w, 2, 2)
        self.dec2, self.dec1 = double(4 * w, 2 * w), double(2 * w, w)
        self.head, self.pool = nn.Conv2d(w, 1, 1), nn.MaxPool2d(2)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.mid(self.pool(b))
        d = self.dec2(torch.cat([self.up2(c), b], 1))
        return self.head(self.dec1(torch.cat([self.up1(d), a], 1)))
