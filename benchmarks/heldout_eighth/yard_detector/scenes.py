"""Container yards from above: coloured boxes in rows, some of them askew, with their labels."""

# mypy: ignore-errors
import torch
from torch.utils.data import Dataset

SIDE, KINDS = 96, 4


class Yards(Dataset):
    def __init__(self, count, most=9, seed=0):
        dice = torch.Generator().manual_seed(seed)
        self.images = 0.4 + 0.05 * torch.randn(count, 3, SIDE, SIDE, generator=dice)
        self.boxes = []
        colours = torch.rand(KINDS, 3, generator=dice)
        for image in self.images:
            rows = []
            for _ in range(int(torch.randint(5, most + 1, (), generator=dice))):
                kind = int(torch.randint(KINDS, (), generator=dice))
                wide, high = (8 + torch.randint(20, (2,), generator=dice)).tolist()
                left = int(torch.randint(SIDE - wide, (), generator=dice))
                top = int(torch.randint(SIDE - high, (), generator=dice))
                image[:, top : top + high, left : left + wide] += colours[kind, :, None, None] - 0.3
                rows.append((left + wide / 2, top + high / 2, wide, high, kind))
            self.boxes.append(torch.tensor(rows))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.boxes[index]
