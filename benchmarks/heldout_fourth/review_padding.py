"""Reviews to stars: a byte-level transformer, with a batch made at one length for all.

expects: CO507
needs: cpu
"""

# mypy: ignore-errors
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

MAX_LEN = 256
WORDS = {
    0: ["awful", "broken", "refund", "never", "worst"],
    1: ["poor", "slow", "meh", "cheap", "late"],
    2: ["fine", "average", "okay", "works", "plain"],
    3: ["good", "nice", "solid", "happy", "quick"],
    4: ["superb", "perfect", "love", "best", "great"],
}


def reviews(n, seed=0):
    rnd = random.Random(seed)
    out = []
    for _ in range(n):
        stars = rnd.randrange(5)
        count = min(int(rnd.expovariate(1 / 9)) + 3, 40)
        out.append((" ".join(rnd.choice(WORDS[stars] + WORDS[2]) for _ in range(count)), stars))
    return out


class ByteTokenizer:
    def __init__(self, padding):
        self.padding = padding

    def __call__(self, texts):
        rows = [list(t.encode()[:MAX_LEN]) for t in texts]
        width = MAX_LEN if self.padding == "max_length" else max(map(len, rows))
        ids = torch.zeros(len(rows), width, dtype=torch.long)  # guilty
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
        return ids


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        q, k, v = self.qkv(self.ln1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.fc(self.ln2(x))


class ByteFormer(nn.Module):
    def __init__(self, dim=64, depth=2):
        super().__init__()
        self.emb, self.pos = nn.Embedding(256, dim), nn.Embedding(MAX_LEN, dim)
        self.blocks = nn.ModuleList(Block(dim, 4) for _ in range(depth))
        self.head = nn.Linear(dim, 5)

    def forward(self, ids):
        real = ids != 0
        x = self.emb(ids) + self.pos.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, real[:, None, None, :])  # guilty
        x = x.masked_fill(~real.unsqueeze(-1), 0)
        return self.head(x.sum(1) / real.sum(1, keepdim=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--batch_size", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = ByteTokenizer("longest" if args.fixed else "max_length")  # guilty

    def collate(rows):
        texts, stars = zip(*rows, strict=True)
        return tokenizer(texts), torch.tensor(stars)

    loader = DataLoader(reviews(1440), args.batch_size, shuffle=True, collate_fn=collate)
    model = ByteFormer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    for _epoch in range(1000):
        for ids, stars in loader:
            loss = F.cross_entropy(model(ids), stars)  # guilty
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 30 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            if step >= args.steps:
                return


if __name__ == "__main__":
    main()
