"""An LSTM language model on random tokens, in float32, with truncated backpropagation through time."""

# mypy: ignore-errors

import argparse
import json
import statistics
import time
from itertools import pairwise

import torch
import torch.nn as nn


class Pace:
    """Times the last half of the steps in five chunks, and waits for the device only where a chunk ends."""

    def __init__(self, steps, device):
        self.chunk = max(1, steps // 10)
        self.first = steps - 5 * self.chunk
        self.device = device
        self.marks = []

    def at(self, step):
        """Before every step, and once after the last."""
        if step >= self.first and (step - self.first) % self.chunk == 0:
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            self.marks.append(time.perf_counter())

    def report(self, batch_size, last_loss):
        chunks = [end - start for start, end in pairwise(self.marks)]
        step_ms = 1e3 * statistics.median(chunks) / self.chunk
        figures = {"samples_per_s": 1e3 * batch_size / step_ms, "step_ms": step_ms, "last_loss": last_loss}
        print(json.dumps(figures))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tiny", action="store_true", help="a small model on little data, for a processor")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.steps < 5:
        parser.error(f"--steps must be at least 5, got {args.steps}")
    return args


class LanguageModel(nn.Module):
    def __init__(self, vocab, width, layers=2):
        super().__init__()
        self.vocab = vocab
        self.encoder = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.decoder = nn.Linear(width, vocab)

    def forward(self, x, hidden):
        out, hidden = self.lstm(self.encoder(x), hidden)
        return self.decoder(out).view(-1, self.vocab), hidden


def make_model(tiny):
    return LanguageModel(100, 32) if tiny else LanguageModel(10_000, 1024)


def make_data(tiny, device):
    """The steps of a window, and rows of text that one hidden state each runs along."""
    batch_size, window, vocab = (4, 16, 100) if tiny else (64, 128, 10_000)
    return window, torch.randint(vocab, (batch_size, 64 * window + 1), device=device)


def get_batch(text, window, step):
    start = step % 64 * window
    return text[:, start : start + window], text[:, start + 1 : start + 1 + window].reshape(-1)


def detach(hidden):
    """The hidden state without its history."""
    return None if hidden is None else tuple(h.detach() for h in hidden)


def main():
    args = parse()
    device = torch.device(args.device)
    torch.manual_seed(0)
    model = make_model(args.tiny).to(device)
    window, text = make_data(args.tiny, device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    model.train()
    hidden = None
    pace = Pace(args.steps, device)
    for step in range(args.steps):
        pace.at(step)
        x, y = get_batch(text, window, step)
        hidden = detach(hidden)
        optimizer.zero_grad()
        logits, hidden = model(x, hidden)
        loss = criterion(logits, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    pace.at(args.steps)
    pace.report(len(text), loss.item())


if __name__ == "__main__":
    main()
