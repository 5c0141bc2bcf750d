"""Sentence classification with a small encoder, a data collator object and dynamic padding.

expects: IN107
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

VOCAB, LABELS, PAD, MASK = 4000, 5, 0, 1


class Sentences(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(11)
        self.rows = []
        for _ in range(n):
            y = int(rng.integers(LABELS))
            ids = rng.integers(2, VOCAB, int(rng.integers(60, 128)))
            ids[:: 3 + y] = 10 + y
            self.rows.append({"input_ids": ids.tolist(), "label": y})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


@dataclass
class DataCollatorWithMasking:
    """Pads to the longest sentence and hides some of the tokens."""

    word_dropout: float = 0.1
    seed: int = 0

    def __post_init__(self):
        self.generator = torch.Generator().manual_seed(self.seed)

    def __call__(self, features):
        longest = max(len(f["input_ids"]) for f in features)
        ids = torch.zeros(len(features), longest, dtype=torch.long)
        attention = torch.zeros(len(features), longest, dtype=torch.bool)
        for row, f in enumerate(features):
            for col, token in enumerate(f["input_ids"]):
                ids[row, col] = token  # guilty
                attention[row, col] = True  # guilty
                if torch.rand((), generator=self.generator) < self.word_dropout:  # guilty
                    ids[row, col] = MASK  # guilty
        return {"ids": ids, "attention": attention, "labels": torch.tensor([f["label"] for f in features])}


@dataclass
class FastCollator(DataCollatorWithMasking):
    def __call__(self, features):
        rows = [torch.tensor(f["input_ids"]) for f in features]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        attention = ids != PAD
        hide = (torch.rand(ids.shape, generator=self.generator) < self.word_dropout) & attention
        ids[hide] = MASK
        return {"ids": ids, "attention": attention, "labels": torch.tensor([f["label"] for f in features])}


class Encoder(nn.Module):
    def __init__(self, dim=64, layers=2):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(128, dim) * 0.02)
        block = nn.TransformerEncoderLayer(dim, 4, 2 * dim, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, LABELS)

    def forward(self, ids, attention):
        x = self.tok(ids) + self.pos[: ids.shape[1]]
        x = self.body(x, src_key_padding_mask=~attention)
        weights = attention.unsqueeze(-1).float()
        return self.head((x * weights).sum(1) / weights.sum(1))


def main(argv=None):
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--batch-size", type=int, default=16)
    args = ap.parse_args(argv)
    torch.manual_seed(1)
    collator = (FastCollator if args.fixed else DataCollatorWithMasking)(seed=5)
    loader = DataLoader(Sentences(960), args.batch_size, shuffle=True, collate_fn=collator)
    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 20))
    done = 0
    while done < args.steps:
        for batch in loader:
            logits = model(batch["ids"], batch["attention"])
            loss = nn.functional.cross_entropy(logits, batch["labels"])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            done += 1
            if done % 25 == 0:
                print(f"{done:5d} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.2e}")
            if done >= args.steps:
                break


if __name__ == "__main__":
    main()
