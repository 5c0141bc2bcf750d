"""Intents of utterances: a transformer with a key padding mask.

expects: CO507
needs: cpu
"""

# mypy: ignore-errors
import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAD, VOCAB, INTENTS, MAX_LEN = 0, 1500, 12, 96


class Utterances(Dataset):
    def __init__(self, n, full):
        rng = random.Random(17)
        self.full, self.rows = full, []
        for _ in range(n):
            intent = rng.randrange(INTENTS)
            words = min(MAX_LEN, max(5, int(rng.lognormvariate(2.6, 0.5))))
            ids = [rng.randrange(1, VOCAB) for _ in range(words - 2)] + [intent * 5 + 1, intent * 5 + 2]
            self.rows.append((ids, intent))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids, intent = self.rows[i]
        if self.full:
            ids = ids + [PAD] * (MAX_LEN - len(ids))  # guilty
        return torch.tensor(ids), intent


def collate(batch):
    ids = nn.utils.rnn.pad_sequence([ids for ids, _ in batch], batch_first=True, padding_value=PAD)
    return ids, torch.tensor([intent for _, intent in batch])


class IntentModel(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.pos = nn.Embedding(MAX_LEN, dim)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 4, 192, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.out = nn.Linear(dim, INTENTS)

    def forward(self, ids):
        mask = ids.eq(PAD)
        x = self.embed(ids) + self.pos.weight[: ids.size(1)]
        for block in self.blocks:
            x = block(x, src_key_padding_mask=mask)  # guilty
        keep = (~mask).unsqueeze(-1)
        return self.out((x * keep).sum(1) / keep.sum(1))


def batches(loader, n):
    done = 0
    while True:
        for batch in loader:
            yield batch
            done += 1
            if done == n:
                return


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=110)
    ap.add_argument("--fixed", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(5)
    data = Utterances(1200, full=not args.fixed)  # guilty
    loader = DataLoader(data, batch_size=16, shuffle=True, drop_last=True, collate_fn=collate)
    model = IntentModel()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=30)
    for i, (ids, intent) in enumerate(batches(loader, args.steps), 1):
        loss = nn.functional.cross_entropy(model(ids), intent)  # guilty
        loss.backward()
        opt.step()
        sched.step()
        opt.zero_grad()
        if i % 50 == 0:
            print(f"{i}: {loss.item():.3f}")
