"""Finds containers on yards from above, as centres in heat maps.

expects: IN107, HO402
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
from model import CentreNet, detection_loss
from scenes import KINDS, SIDE, Yards
from targets import HeatCollate, PatchCollate
from torch.utils.data import DataLoader


class Run:
    def __init__(self, args):
        self.steps = args.steps
        collate = (PatchCollate if args.fixed else HeatCollate)(SIDE, KINDS)
        self.train = DataLoader(Yards(256, seed=1), args.batch, shuffle=True, drop_last=True, collate_fn=collate)
        self.check = DataLoader(Yards(16, seed=2), 16, collate_fn=collate)
        self.net = CentreNet(KINDS)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), 1e-3)

    def losses(self, batch):
        images, *targets = batch
        return detection_loss(*self.net(images), *targets)

    @torch.no_grad()
    def held_out(self):
        heat, size = map(sum, zip(*(self.losses(batch) for batch in self.check)))
        return heat.item(), size.item()

    def go(self):
        step = 0
        while step < self.steps:
            for batch in self.train:
                heat, size = self.losses(batch)
                self.optimizer.zero_grad()
                (heat + 0.1 * size).backward()
                self.optimizer.step()
                step += 1
                if step % 25 == 0:
                    print(f"step {step} heat {heat.item():.3f} size {size.item():.3f}")
                if step >= self.steps:
                    break
        print("held out: heat {:.3f} size {:.3f}".format(*self.held_out()))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=90)
    cli.add_argument("--batch", type=int, default=16)
    cli.add_argument("--fixed", action="store_true")
    torch.manual_seed(4)
    Run(cli.parse_args()).go()


if __name__ == "__main__":
    main()
