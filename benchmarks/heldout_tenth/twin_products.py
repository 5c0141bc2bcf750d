"""Learns an embedding in which photographs of the same product lie together: batch-hard triplets, P products x K shots.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import random
from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

SIDE = 28


class Shop(Dataset):
    """Photographs of many products, a few of each, in random order as they were uploaded."""

    def __init__(self, products, shots, seed):
        generator = torch.Generator().manual_seed(seed)
        looks = torch.rand(products, 1, 7, 7, generator=generator)
        looks = F.interpolate(looks, SIDE, mode="bilinear").squeeze(1).mul(220)
        self.labels = torch.arange(products).repeat_interleave(shots)
        self.labels = self.labels[torch.randperm(len(self.labels), generator=generator)]
        self.photos = torch.empty(len(self.labels), SIDE, SIDE, dtype=torch.uint8)
        for part in torch.arange(len(self.labels)).split(4000):
            light = 0.6 + 0.5 * torch.rand(len(part), 1, 1, generator=generator)
            grain = 30 * torch.rand(len(part), SIDE, SIDE, generator=generator)
            self.photos[part] = (looks[self.labels[part]] * light + grain).clamp(0, 255).byte()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        photo = self.photos[index].float().div(255)
        if random.random() < 0.5:
            photo = photo.roll((random.randint(-2, 2), random.randint(-2, 2)), (0, 1))
        return photo[None], self.labels[index]


class PairedSampler(Sampler):
    """Yields the places of P products with K photographs each."""

    def __init__(self, labels, products, shots, batches, grouped, seed=0):
        self.labels = labels.tolist()
        self.names = sorted(set(self.labels))
        self.products, self.shots, self.batches = products, shots, batches
        self.rng = random.Random(seed)
        self.groups = None
        if grouped:
            self.groups = defaultdict(list)
            for place, label in enumerate(self.labels):
                self.groups[label].append(place)

    def __len__(self):
        return self.batches

    def places(self, product):
        if self.groups is not None:
            return self.groups[product]
        return [place for place, label in enumerate(self.labels) if label == product]  # guilty

    def __iter__(self):
        for _ in range(self.batches):
            batch = []
            for product in self.rng.sample(self.names, self.products):
                places = self.places(product)  # guilty
                batch += self.rng.sample(places, min(self.shots, len(places)))
            yield batch


class Embedder(nn.Module):
    def __init__(self, size=64, width=24):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(True), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(True), nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(True),
            nn.Flatten(), nn.Linear(2 * width * 49, size),
        )  # fmt: skip

    def forward(self, photos):
        return F.normalize(self.layers(photos), dim=1)


def hard_triplets(embeddings, labels, margin=0.3):
    """Furthest photograph of the same product against the nearest one of another."""
    apart = (2 - 2 * embeddings @ embeddings.T).clamp(min=1e-9).sqrt()
    same = labels[:, None] == labels
    furthest = apart.masked_fill(~same, 0).amax(1)
    nearest = apart.masked_fill(same, 9).amin(1)
    return F.softplus(10 * (furthest - nearest + margin)).mean() / 10, (nearest > furthest).float().mean().item()


@torch.no_grad()
def first_hits(model, shop, count=400):
    """Share of products whose second photograph is found first by the first one."""
    model.eval()
    order = shop.labels.argsort(stable=True)[: 5 * count]
    queries, answers = order[::5], order[1::5]
    left = model(shop.photos[queries][:, None].float().div(255))
    right = model(shop.photos[answers][:, None].float().div(255))
    model.train()
    return ((left @ right.T).argmax(1) == torch.arange(count)).float().mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=600)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--products", type=int, default=16)
    cli.add_argument("--shots", type=int, default=4)
    args = cli.parse_args()
    torch.manual_seed(21)
    random.seed(21)

    shop = Shop(products=6000, shots=5, seed=2)
    held = Shop(products=400, shots=5, seed=77)
    sampler = PairedSampler(shop.labels, args.products, args.shots, args.steps, grouped=args.fixed)
    loader = DataLoader(shop, batch_sampler=sampler)
    model = Embedder()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=args.steps + 1)
    loss_mean = right_mean = 0.0
    for step, (photos, labels) in enumerate(loader, 1):  # guilty
        loss, right = hard_triplets(model(photos), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        pace = max(0.05, 1 / step)
        loss_mean += pace * (loss.item() - loss_mean)
        right_mean += pace * (right - right_mean)
        if step % 100 == 0:
            print(f"step {step} loss {loss_mean:.4f} in order {right_mean:.3f}")
    print(f"found first: {first_hits(model, held):.3f}")


if __name__ == "__main__":
    main()
