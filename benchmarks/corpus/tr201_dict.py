"""A trainer that moves dict batches with `.cuda()`, without pinned memory.

expects: TR201
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Stereo(Dataset):
    def __init__(self):
        self.left, self.right = torch.randn(16, 3, 192, 320), torch.randn(16, 3, 192, 320)

    def __len__(self):
        return 1 << 16

    def __getitem__(self, i):
        return {"left": self.left[i % 16], "right": self.right[i % 16], "depth": self.left[i % 16, 0]}


class Depth:
    def __init__(self, args):
        self.args = args
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        wide = 128 if self.device == "cuda" else 8
        layers = [nn.Conv2d(6, wide, 5, 1, 2), nn.ReLU(), nn.Conv2d(wide, wide, 3, 1, 1), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.Conv2d(wide, wide, 3, 1, 1), nn.ReLU(), nn.Conv2d(wide, 1, 1))
        self.net.to(self.device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), 1e-3, fused=True)
        pin = args.fixed and self.device == "cuda"
        self.loader = DataLoader(Stereo(), batch_size=8, num_workers=8, pin_memory=pin, persistent_workers=True)

    def to_device(self, batch):
        return {
            name: value.to(self.device, non_blocking=self.args.fixed)  # guilty
            for name, value in batch.items()
        }

    def fit(self):
        for step, batch in enumerate(self.loader):
            batch = self.to_device(batch)
            with torch.autocast("cuda", torch.bfloat16, enabled=self.device == "cuda"):
                out = self.net(torch.cat([batch["left"], batch["right"]], 1)).squeeze(1)
                loss = (out - batch["depth"]).abs().mean()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            if step + 1 == self.args.steps:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--fixed", action="store_true")
    torch.manual_seed(0)
    Depth(parser.parse_args()).fit()
