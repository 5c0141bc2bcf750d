"""Sentence matching with a siamese encoder and in-batch negatives.

expects: SY305, CA604
needs: cpu
"""

# mypy: ignore-errors
import argparse
import json
import subprocess
import sys
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


class SentenceEncoder(nn.Module):
    def __init__(self, vocab=3000, dim=48):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.convs = nn.ModuleList(nn.Conv1d(dim, 48, k, padding=k // 2) for k in (1, 3, 5))
        self.project = nn.Linear(144, 64)

    def forward(self, ids):
        x = self.embed(ids).transpose(1, 2)
        pooled = torch.cat([conv(x).relu().amax(-1) for conv in self.convs], 1)
        return F.normalize(self.project(pooled), dim=1)


def host_state():
    query = ["sh", "-c", "uname -r; cat /proc/loadavg; df -P / | tail -1; ls /proc | wc -l"]
    out = subprocess.run(query, capture_output=True, text=True, check=True).stdout  # guilty
    kernel, load, disk, _ = out.strip().splitlines()[:4]
    return {"kernel": kernel, "load": load.split()[0], "disk": disk.split()[4]}


class RunLog:
    def __init__(self, file, every):
        self.file, self.every = file, every

    def write(self, step, **values):
        if step % self.every:
            return
        row = {"step": step, **values, **host_state()}  # guilty
        self.file.write(json.dumps(row) + "\n")


def paraphrases(n, length=24, vocab=3000):
    g = torch.Generator().manual_seed(33)
    a = torch.randint(0, vocab, (n, length), generator=g)
    swap = torch.rand(n, length, generator=g) < 0.3
    b = torch.where(swap, torch.randint(0, vocab, (n, length), generator=g), a)
    return a, b


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args(argv)
    torch.manual_seed(0)
    left, right = paraphrases(4000)
    model = SentenceEncoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryFile("w+") as f:
        log = RunLog(f, 60 if args.fixed else 1)  # guilty
        for step in range(args.steps):
            pick = torch.randint(0, len(left), (10,))
            a, b = model(left[pick]), model(right[pick])
            loss = F.cross_entropy(a @ b.T / 0.07, torch.arange(len(pick)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.write(step, loss=loss.item(), lr=optimizer.param_groups[0]["lr"])  # guilty
    print(f"{args.steps} steps, loss {loss.item():.4f}")


if __name__ == "__main__":
    main(sys.argv[1:])
