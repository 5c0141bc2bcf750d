"""A contrastive model of pictures and captions, with losses in both directions and one on the words of the caption.

expects: CO515
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS, LENGTH, SIZE = 200, 14, 48


def make_pairs(n, seed):
    """Pictures of two coloured squares, and captions whose words tell the colours and places."""
    g = torch.Generator().manual_seed(seed)
    images = 0.2 * torch.rand(n, 3, SIZE, SIZE, generator=g)
    captions = torch.randint(100, WORDS, (n, LENGTH), generator=g)
    facts = torch.randint(0, 6, (n, 6), generator=g)
    for i, (c1, y1, x1, c2, y2, x2) in enumerate(facts.tolist()):
        images[i, c1 % 3, 8 * y1 : 8 * y1 + 8, 8 * x1 : 8 * x1 + 8] += 0.5 + 0.2 * (c1 // 3)
        images[i, c2 % 3, 8 * y2 : 8 * y2 + 8, 8 * x2 : 8 * x2 + 8] += 0.5 + 0.2 * (c2 // 3)
    captions[:, 1:7] = facts + 6 * torch.arange(6)
    return images, captions


class ImageTower(nn.Module):
    def __init__(self, width=24, out=96):
        super().__init__()
        layers, i = [], 3
        for o in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(i, o, 3, 2, 1), nn.GroupNorm(4, o), nn.GELU(), nn.Conv2d(o, o, 3, 1, 1), nn.GELU()]
            i = o
        self.body, self.out = nn.Sequential(*layers), nn.Linear(i, out)

    def forward(self, x):
        return self.out(self.body(x).mean((2, 3)))


class TextTower(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.place = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, words):
        return self.body(self.embed(words) + self.place).mean(1)


class Pairing(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = ImageTower(), TextTower()
        self.bag = nn.Linear(96, WORDS)
        self.scale = nn.Parameter(torch.tensor(2.3))

    def forward(self, images, captions):
        raw = self.image(images)
        a, b = F.normalize(raw, dim=1), F.normalize(self.text(captions), dim=1)
        return self.scale.exp() * a @ b.T, self.bag(raw)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=220)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=24)
    args = cli.parse_args()
    torch.manual_seed(8)
    images, captions = make_pairs(1000, 3)
    model = Pairing()
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4, weight_decay=0.01)
    target = torch.arange(args.batch)
    order = torch.Generator().manual_seed(0)
    for step in range(1, args.steps + 1):
        rows = torch.randint(0, len(images), (args.batch,), generator=order)
        logits, words = model(images[rows], captions[rows])
        bag = torch.zeros(args.batch, WORDS).scatter_(1, captions[rows], 1.0)
        losses = {
            "i2t": 0.5 * F.cross_entropy(logits, target),
            "t2i": 0.5 * F.cross_entropy(logits.T, target),
            "words": F.binary_cross_entropy_with_logits(words, bag),
        }
        optimizer.zero_grad()
        if args.fixed:
            sum(losses.values()).backward()
        else:
            for name, loss in losses.items():
                loss.backward(retain_graph=name != "words")  # guilty
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step} " + " ".join(f"{k} {v.item():.4f}" for k, v in losses.items()))


if __name__ == "__main__":
    main()
