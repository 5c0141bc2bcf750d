"""Each epoch, every worker reads its index anew before its first sample.

expects: IN105
needs: either
"""
# mypy: ignore-errors

import argparse

import torch
from making import json_lines
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Indexed(Dataset):
    def __init__(self, path, size):
        self.path, self.size = path, size
        self.index = None

    def _open(self):
        import json

        with open(self.path) as lines:
            self.index = [json.loads(line)["values"] for line in lines]

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        if self.index is None:
            self._open()
        return {"x": torch.tensor(self.index[i]), "y": torch.tensor(float(i % 3))}


class Regression:
    def __init__(self, args):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.net = nn.Sequential(nn.Linear(120, 800), nn.Tanh(), nn.Linear(800, 800), nn.Tanh(), nn.Linear(800, 1))
        self.net.to(self.device)
        self.optimizer = torch.optim.RMSprop(self.net.parameters(), lr=1e-4)
        dataset = Indexed(json_lines("index.jsonl", 1600, 120), 1600)
        self.loader = DataLoader(  # guilty
            dataset, batch_size=100, shuffle=True, num_workers=1, persistent_workers=args.fixed
        )

    def epoch(self, left):
        for number, batch in enumerate(self.loader):
            if number == left:
                break
            out = self.net(batch["x"].to(self.device)).squeeze(1)
            loss = nn.functional.huber_loss(out, batch["y"].to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return min(left, len(self.loader))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    job, left = Regression(options), options.steps
    while left > 0:
        left -= job.epoch(left)
