"""Word vectors by skip-gram with negative samples, saved on the way.

expects: CA603
needs: cpu
"""

# mypy: ignore-errors

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.nn.functional import logsigmoid


class SkipGram(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.centre = nn.Embedding(words, width, sparse=True)
        self.around = nn.Embedding(words, width, sparse=True)
        nn.init.normal_(self.around.weight, std=0.01)

    def forward(self, centre, near, far):
        middle = self.centre(centre)
        close = (middle * self.around(near)).sum(-1)
        apart = (self.around(far) @ middle[:, :, None]).squeeze(-1)
        return -(logsigmoid(close) + logsigmoid(-apart).sum(-1)).mean()


def zipf(count, words, generator):
    return (words ** torch.rand(count, generator=generator)).long().clamp(max=words - 1)


def snapshot(folder, model, step):
    path = os.path.join(folder, "vectors.pt")
    torch.save({"step": step, "model": model.state_dict()}, path + ".new")  # guilty
    os.replace(path + ".new", path)


def train(args, folder):
    generator = torch.Generator().manual_seed(21)
    text = zipf(200_000, args.words, generator)
    model = SkipGram(args.words, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(1, args.steps + 1):
        at = torch.randint(2, len(text) - 2, (1024,), generator=generator)
        far = zipf(1024 * 8, args.words, generator).view(1024, 8)
        loss = model(text[at], text[at + 1], far)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.save_every == 0:
            snapshot(folder, model, step)
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=280)
    parser.add_argument("--words", type=int, default=40_000)
    parser.add_argument("--save-every", type=int, default=2)
    parser.add_argument("--fixed", action="store_true")
    arguments = parser.parse_args()
    if arguments.fixed:
        arguments.save_every = 100
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        train(arguments, scratch)
