"""Guesses stars of hotel reviews from a JSON-lines file: iterable dataset, hashed word pieces, text convolutions.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import json
import random
import re
import tempfile
import zlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

BUCKETS, LENGTH, PIECES, STARS = 4096, 96, 8, 5
WORD, DOUBLED = re.compile(r"[a-z]+|[!?]"), re.compile(r"(.)\1+")
ENDINGS = ("mirtos", "zolan", "quira", "yuzo", "tiwa", "sexe", "mir", "tos", "lan")
SYLLABLES = "ba co di fe gu ha ji ko lu ma ne po qui ra se ti vo wa xe yu zo lan mir tos".split()


def write_reviews(path, count, seed):
    """Words have a mood; the more stars, the more cheerful words are taken."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(2, 4))) for _ in range(2500)]
    mood = sorted(range(len(words)), key=lambda _: rng.random())
    with open(path, "w") as file:
        for number in range(count):
            stars = rng.randint(1, STARS)
            middle = (stars - 0.5) / STARS * len(words)
            picks = [mood[int(rng.gauss(middle, 500)) % len(words)] for _ in range(70)]
            picks += [rng.randrange(len(words)) for _ in range(40)]
            rng.shuffle(picks)
            text = " ".join(words[pick] for pick in picks).capitalize() + "!" * (stars // 2)
            file.write(json.dumps({"id": number, "stars": stars, "hotel": rng.randrange(400), "text": text}) + "\n")


def stem(word):
    """The word without doubled letters and without the first ending that fits."""
    word = DOUBLED.sub(r"\1", word)
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) > 3:
            return word[: -len(ending)]
    return word


def pieces(word):
    """Smallest hashes of the groups of three to five letters, and that of the word."""
    marked = f"<{stem(word)}>"
    found = {
        zlib.crc32(marked[start : start + size].encode())
        for size in (3, 4, 5)
        for start in range(len(marked) - size + 1)
    }
    smallest = sorted(found)[: PIECES - 1]
    return [1 + piece % (BUCKETS - 1) for piece in (zlib.crc32(word.encode()), *smallest)]


def parse(line):
    """Stars, and for each of the first words the hashes of its pieces (filled up with zeros)."""
    review = json.loads(line)
    rows = [pieces(word) for word in WORD.findall(review["text"].lower())[:LENGTH]]
    rows += [[]] * (LENGTH - len(rows))
    return torch.tensor([row + [0] * (PIECES - len(row)) for row in rows]), review["stars"] - 1


class Reviews(IterableDataset):
    def __init__(self, path, ahead=False):
        self.path, self.ahead = path, ahead

    def lines(self):
        while True:
            with open(self.path) as file:
                yield from file

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        for number, line in enumerate(self.lines()):
            if self.ahead and number % workers != worker:
                continue
            review = parse(line)  # guilty
            if number % workers == worker:  # guilty
                yield review


class TextNet(nn.Module):
    def __init__(self, width=32, channels=40):
        super().__init__()
        self.table = nn.Embedding(BUCKETS, width, padding_idx=0)
        self.windows = nn.ModuleList([nn.Conv1d(width, channels, size) for size in (2, 3)])
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(2 * channels, STARS))

    def forward(self, hashes):
        batch, length, count = hashes.shape
        summed = F.embedding_bag(hashes.view(-1, count), self.table.weight, mode="sum", padding_idx=0)
        x = summed.view(batch, length, -1).transpose(1, 2)
        return self.head(torch.cat([F.relu(window(x)).amax(2) for window in self.windows], 1))


def train(path, args):
    stream = Reviews(path, ahead=args.fixed)
    loader = DataLoader(stream, batch_size=args.batch, num_workers=args.workers, prefetch_factor=4)
    model = TextNet()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    losses, right = [], []
    for step, (hashes, stars) in enumerate(loader, 1):
        guess = model(hashes)
        loss = F.cross_entropy(guess, stars)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        right.append((guess.argmax(1) == stars).float().mean().item())
        if step % 100 == 0 or step == args.steps:
            print(f"step {step} loss {sum(losses) / len(losses):.3f} accuracy {sum(right) / len(right):.3f}")
            losses.clear()
            right.clear()
        if step == args.steps:
            break


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=700)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=24)
    cli.add_argument("--workers", type=int, default=2)
    args = cli.parse_args()
    torch.manual_seed(37)
    with tempfile.TemporaryDirectory() as folder:
        write_reviews(f"{folder}/reviews.jsonl", 5000, seed=1)
        train(f"{folder}/reviews.jsonl", args)


if __name__ == "__main__":
    main()
