"""Made radar scenes of a glacier that ends in the sea."""

# mypy: ignore-errors
import torch

SIDE = 48


def make_scenes(count, seed):
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, SIDE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    phase = torch.rand(count, 3, 1, 1, generator=g) * 6.28
    height = torch.randn(count, 3, 1, 1, generator=g) * 0.15
    front = sum(height[:, k] * torch.sin((2 + 2 * k) * x + phase[:, k]) for k in range(3))
    ice = (y < front).long()
    rock = (x.abs() > 0.8 + 0.1 * torch.sin(5 * y + phase[:, 0])).long()
    labels = torch.where(rock == 1, torch.full_like(ice, 2), ice)
    tone = torch.tensor([0.2, 0.6, 0.9])[labels]
    speckle = torch.empty(count, SIDE, SIDE).exponential_(generator=g)
    return (tone * (0.4 + 0.6 * speckle))[:, None], labels
