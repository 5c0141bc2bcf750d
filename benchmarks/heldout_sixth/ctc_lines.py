"""Recognition of printed lines with CTC: lines of equal width share a batch, and the recurrent part runs packed.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

GLYPHS, HEIGHT = "0123456789abcdefghijklmnop", 16


def print_line(text, font, rng):
    width = int(font.getlength(text)) + 8
    page = Image.new("L", (width, HEIGHT), 0)
    ImageDraw.Draw(page).text((4, 1 + int(rng.integers(0, 3))), text, fill=255, font=font)
    noisy = np.asarray(page, np.float32) / 255 + 0.1 * rng.normal(size=(HEIGHT, width))
    return torch.tensor(noisy, dtype=torch.float32)


def make_lines(n, seed):
    rng, font = np.random.default_rng(seed), ImageFont.load_default()
    lines = []
    for _ in range(n):
        code = rng.integers(0, len(GLYPHS), rng.integers(5, 15))
        text = "".join(GLYPHS[i] for i in code)
        lines.append((print_line(text, font, rng), torch.from_numpy(code + 1)))
    return lines


def collate(group):
    widths = torch.tensor([line.shape[1] for line, _ in group])
    pages = torch.zeros(len(group), 1, HEIGHT, int(widths.max()))
    for row, (line, _) in enumerate(group):
        pages[row, 0, :, : line.shape[1]] = line
    target = torch.cat([code for _, code in group])
    return pages, (widths + 1) // 2, target, torch.tensor([len(code) for _, code in group])


def bucketed(lines, batch_size):
    """Batches of lines of about the same width, made once."""
    lines = sorted(lines, key=lambda line: line[0].shape[1])
    return [collate(lines[i : i + batch_size]) for i in range(0, len(lines), batch_size)]


class Reader(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 24, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(24, 32, 3, (2, 1), 1),
            nn.ReLU(),
        )
        self.squeeze = nn.Linear(32 * HEIGHT // 4, width)
        self.rnn = nn.GRU(width, width, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * width, len(GLYPHS) + 1)

    def forward(self, pages, lengths):
        x = self.conv(pages).permute(0, 3, 1, 2).flatten(2)
        packed = pack_padded_sequence(F.relu(self.squeeze(x)), lengths, batch_first=True, enforce_sorted=False)
        x, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(x).log_softmax(2)


@torch.no_grad()
def exact_share(model, batches):
    right = total = 0
    for pages, lengths, target, sizes in batches:
        best = model(pages, lengths).argmax(2)
        for row, length, code in zip(best, lengths.tolist(), target.split(sizes.tolist()), strict=False):
            read = row[:length].unique_consecutive()
            right += torch.equal(read[read > 0], code)
            total += 1
    return right / total


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=130)
    cli.add_argument("--fixed", action="store_true", help="there is nothing to repair")
    args = cli.parse_args()
    torch.manual_seed(12)
    lines = make_lines(672, 3)
    batches, held = bucketed(lines[:640], 16), bucketed(lines[640:], 16)
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    order = np.random.default_rng(1)
    for step in range(1, args.steps + 1):
        pages, lengths, target, sizes = batches[order.integers(len(batches))]
        chances = model(pages, lengths).transpose(0, 1)
        loss = F.ctc_loss(chances, target, lengths, sizes, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 75 == 0:
            print(f"step {step} loss {loss.item():.4f} exact {exact_share(model, held):.3f}")


if __name__ == "__main__":
    main()
