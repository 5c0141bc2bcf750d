"""Every gradient is looked at for NaN, one wait for the device each.

expects: SY304
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn


def check_gradients(model):
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and torch.isnan(parameter.grad).any():  # guilty
            raise SystemExit(f"NaN in the gradient of {name}")


class Loop:
    def __init__(self, steps, check):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        blocks = [layer for _ in range(24) for layer in (nn.Linear(384, 384), nn.LayerNorm(384), nn.SiLU())]
        self.model = nn.Sequential(*blocks).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4)
        self.steps, self.check = steps, check

    def run(self):
        x = torch.randn(512, 384, device=self.device)
        for _ in range(self.steps):
            self.optimizer.zero_grad()
            nn.functional.smooth_l1_loss(self.model(x), x).backward()
            if self.check:
                check_gradients(self.model)
            self.optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    Loop(args.steps, check=not args.fixed).run()
