"""Metric learning: embeddings are drawn to the centre of their class and pushed from the nearest other one.

expects: SY302, HO402
needs: gpu
"""

# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def unit(cin, cout, stride):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, 1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, 1, 1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class EmbeddingNet(nn.Module):
    def __init__(self, width=64, dim=128):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 5, 2, 2)
        self.units = nn.Sequential(
            unit(width, width, 1),
            unit(width, 2 * width, 2),
            unit(2 * width, 4 * width, 2),
            unit(4 * width, 8 * width, 2),
        )
        self.fc = nn.Linear(8 * width, dim)

    def forward(self, x):
        x = self.units(F.relu(self.stem(x)))
        return F.normalize(self.fc(x.mean((2, 3))).float(), dim=1)


class CentreTripletLoss(nn.Module):
    def __init__(self, classes, margin=0.2):
        super().__init__()
        self.classes, self.margin = classes, margin

    def centres(self, emb, labels):
        rows = []
        for c in range(self.classes):  # guilty
            members = emb[labels == c]  # guilty
            rows.append(members.mean(dim=0))  # guilty
        return torch.stack(rows)

    def forward(self, emb, labels):
        dist = torch.cdist(emb, self.centres(emb, labels))  # guilty
        own_class = labels[:, None] == torch.arange(self.classes, device=labels.device)
        own = dist.gather(1, labels[:, None]).squeeze(1)
        nearest = dist.masked_fill(own_class, torch.inf).amin(dim=1)
        violation = own - nearest + self.margin
        active = violation[violation > 0]  # guilty
        return active.sum() / max(len(active), 1)


class DenseCentreTripletLoss(CentreTripletLoss):
    def centres(self, emb, labels):
        member = (labels == torch.arange(self.classes, device=labels.device)[:, None]).float()
        return member @ emb / member.sum(dim=1, keepdim=True)

    def forward(self, emb, labels):
        dist = torch.cdist(emb, self.centres(emb, labels))
        own_class = labels[:, None] == torch.arange(self.classes, device=labels.device)
        own = dist.gather(1, labels[:, None]).squeeze(1)
        nearest = dist.masked_fill(own_class, torch.inf).amin(dim=1)
        violation = (own - nearest + self.margin).relu()
        return violation.sum() / (violation > 0).sum().clamp(min=1)


def balanced_batch(images, per_class, generator):
    classes, stored = images.shape[:2]
    device = images.device
    picks = torch.randint(stored, (classes, per_class), generator=generator, device=device)
    labels = torch.arange(classes, device=device)[:, None].expand(-1, per_class)
    x = images[labels, picks].flatten(0, 1).float().div_(255)
    return x.contiguous(memory_format=torch.channels_last), labels.flatten()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=330)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(5)
    torch.backends.cudnn.benchmark = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    classes, per_class, size, width = (8, 2, 32, 8) if args.tiny else (64, 8, 96, 64)
    generator = torch.Generator(device).manual_seed(5)
    images = torch.randint(256, (classes, 24, 3, size, size), generator=generator, device=device, dtype=torch.uint8)
    model = EmbeddingNet(width).to(device, memory_format=torch.channels_last)
    criterion = (DenseCentreTripletLoss if args.fixed else CentreTripletLoss)(classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    for step in range(args.steps):
        x, labels = balanced_batch(images, per_class, generator)
        with torch.autocast(device, dtype=torch.bfloat16):
            emb = model(x)
        loss = criterion(emb, labels)  # guilty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(step + 1, loss.item())


if __name__ == "__main__":
    main()
