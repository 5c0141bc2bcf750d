"""Insurance claims to categories: a BERT-like encoder built from a config, and a collator with a fixed length.

expects: CO507
needs: gpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification


class Claims(Dataset):
    """Most claims are a few lines, some are long letters."""

    def __init__(self, n, longest, vocab):
        rng = np.random.default_rng(0)
        lengths = np.clip(rng.lognormal(np.log(longest / 6), 0.5, n), 8, longest).astype(int)
        self.rows = [rng.integers(5, vocab, k) for k in lengths]
        self.labels = rng.integers(0, 12, n)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "label": int(self.labels[i])}


@dataclass
class Collator:
    max_length: int
    padding: str = "max_length"

    def __call__(self, features):
        longest = max(len(f["input_ids"]) for f in features)
        width = self.max_length if self.padding == "max_length" else -(-longest // 16) * 16
        ids = torch.zeros(len(features), width, dtype=torch.long)  # guilty
        mask = torch.zeros(len(features), width, dtype=torch.long)
        for i, f in enumerate(features):
            k = len(f["input_ids"])
            ids[i, :k], mask[i, :k] = torch.from_numpy(f["input_ids"]), 1
        return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([f["label"] for f in features])}


class ByLength:
    """Batches of rows of about the same length, in random order."""

    def __init__(self, lengths, size, batches, seed=0):
        self.order, self.size, self.batches = np.argsort(lengths, kind="stable"), size, batches
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            lo = int(self.rng.integers(0, len(self.order) - self.size + 1))
            yield self.order[lo : lo + self.size].tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=330)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    device, cuda = torch.device(args.device), args.device != "cpu"
    longest, vocab, batch = (512, 30000, 64) if cuda else (32, 100, 2)
    size = {"hidden_size": 768, "num_hidden_layers": 8, "num_attention_heads": 12, "intermediate_size": 3072}
    if not cuda:
        size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=vocab, max_position_embeddings=longest, num_labels=12, **size)
    model = BertForSequenceClassification(config).to(device)
    data = Claims(4000 if cuda else 40, longest, vocab)
    collator = Collator(longest, "longest" if args.fixed else "max_length")  # guilty
    sampler = ByLength([len(r) for r in data.rows], batch, args.steps)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=collator, num_workers=4 if cuda else 0, pin_memory=cuda)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-5, fused=cuda)
    for step, batch in enumerate(loader, 1):
        batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
        with torch.autocast(device.type, torch.bfloat16):
            loss = model(**batch).loss  # guilty
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
