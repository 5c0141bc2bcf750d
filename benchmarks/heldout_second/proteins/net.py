"""A convolutional classifier of profiles."""

# mypy: ignore-errors

from torch import nn


class Residual(nn.Module):
    def __init__(self, width: int, dilation: int):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        return x + self.norm(self.conv(x)).relu()


class FamilyNet(nn.Module):
    def __init__(self, letters: int, width: int, families: int):
        super().__init__()
        self.stem = nn.Conv1d(letters, width, 1)
        self.blocks = nn.Sequential(*(Residual(width, 2**depth) for depth in range(3)))
        self.head = nn.Linear(width, families)

    def forward(self, profiles):
        return self.head(self.blocks(self.stem(profiles)).amax(2))
