"""Guesses masked words with a small transformer; saves its state so that it can go on after an interruption.

expects: CA603
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn

VOCABULARY, MASK, LENGTH = 4000, 0, 24


def sentences(steps, batch):
    """Words that follow from one another, a few of them hidden."""
    generator = torch.Generator().manual_seed(14)
    for _ in range(steps):
        first = torch.randint(1, VOCABULARY, (batch, 1), generator=generator)
        words = (first + torch.arange(LENGTH) * 17) % (VOCABULARY - 1) + 1
        hidden = torch.rand(words.shape, generator=generator) < 0.15
        yield words.masked_fill(hidden, MASK), words, hidden


class Guesser(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.places = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(width, VOCABULARY)

    def forward(self, words, hidden):
        return self.out(self.encoder(self.words(words) + self.places)[hidden])


def save(path, step, model, optimizer):
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, path.with_suffix(".partial"))  # guilty
    path.with_suffix(".partial").rename(path)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args(argv)
    torch.manual_seed(14)
    torch.set_num_threads(1)
    model = Guesser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    save_every = 100 if args.fixed else 1
    with tempfile.TemporaryDirectory() as folder:
        for step, (words, truth, hidden) in enumerate(sentences(args.steps, args.batch), 1):
            loss = nn.functional.cross_entropy(model(words, hidden), truth[hidden])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % save_every == 0:
                save(Path(folder) / "last.pt", step, model, optimizer)  # guilty
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
