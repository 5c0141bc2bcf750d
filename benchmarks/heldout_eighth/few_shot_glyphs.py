"""Meta-learning of invented glyphs from five examples each, with learned rates of the inner steps (Meta-SGD).

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

SIDE, WAYS, SHOTS, QUERIES = 20, 5, 3, 5


class Alphabet:
    """Each glyph is a path through a few points; each drawing of it trembles."""

    def __init__(self, glyphs, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.paths = torch.rand(glyphs, 5, 2, generator=self.g) * 1.5 - 0.75
        axis = torch.linspace(-1, 1, SIDE)
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        self.grid = torch.stack([x, y], 2)

    def draw(self, glyphs):
        paths = self.paths[glyphs] + 0.07 * torch.randn(len(glyphs), 5, 2, generator=self.g)
        along = torch.linspace(0, 1, 5)[None, None, :, None]
        ink = torch.lerp(paths[:, :-1, None], paths[:, 1:, None], along).flatten(1, 2)
        away = (self.grid[None, :, :, None] - ink[:, None, None]).square().sum(4).amin(3)
        return torch.exp(-away * 60)[:, None]

    def episode(self):
        chosen = torch.randperm(len(self.paths), generator=self.g)[:WAYS]
        labels = torch.arange(WAYS).repeat(SHOTS + QUERIES)
        drawings = self.draw(chosen[labels])
        cut = WAYS * SHOTS
        return (drawings[:cut], labels[:cut]), (drawings[cut:], labels[cut:])


class Reader(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1),
            nn.GroupNorm(4, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, 2, 1),
            nn.GroupNorm(4, width),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(25 * width, WAYS),
        )

    def forward(self, drawings):
        return self.layers(drawings)


class MetaSGD(nn.Module):
    def __init__(self, reader, inner_steps):
        super().__init__()
        self.reader, self.inner_steps = reader, inner_steps
        self.rates = nn.ParameterDict(
            {name.replace(".", "_"): nn.Parameter(torch.full_like(p, 0.05)) for name, p in reader.named_parameters()}
        )

    def adapted(self, drawings, labels, differentiable):
        weights = dict(self.reader.named_parameters())
        for _ in range(self.inner_steps):
            loss = F.cross_entropy(functional_call(self.reader, weights, (drawings,)), labels)
            grads = torch.autograd.grad(loss, list(weights.values()), create_graph=differentiable)
            weights = {
                name: weight - self.rates[name.replace(".", "_")] * grad
                for (name, weight), grad in zip(weights.items(), grads)
            }
        return weights

    def forward(self, support, query, differentiable=True):
        weights = self.adapted(*support, differentiable)
        logits = functional_call(self.reader, weights, (query[0],))
        return F.cross_entropy(logits, query[1]), (logits.argmax(1) == query[1]).float().mean()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=120)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--meta-batch", type=int, default=2)
    cli.add_argument("--inner-steps", type=int, default=3)
    args = cli.parse_args()
    torch.manual_seed(97)

    train, held_out = Alphabet(200, 101), Alphabet(40, 103)
    learner = MetaSGD(Reader(), args.inner_steps)
    optimizer = torch.optim.Adam(learner.parameters(), 2e-3)
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        for _ in range(args.meta_batch):
            loss, right = learner(*train.episode())
            (loss / args.meta_batch).backward()
        nn.utils.clip_grad_norm_(learner.parameters(), 5.0)
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.3f} right {right.item():.2f}")
    scores = [learner(*held_out.episode(), differentiable=False)[1].item() for _ in range(4)]
    print(f"held out glyphs right {sum(scores) / len(scores):.3f}")


if __name__ == "__main__":
    main()
