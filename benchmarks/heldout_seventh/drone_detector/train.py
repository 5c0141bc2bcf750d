"""Trains a single-shot detector on synthetic aerial scenes.

expects: HO408, HO402
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
from data import Scenes
from model import Detector, detection_loss
from torch.utils.data import DataLoader


def parse():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=180)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=4)
    cli.add_argument("--lr", type=float, default=0.02)
    return cli.parse_args()


def warm_up(step, over=40):
    return min(1.0, (step + 1) / over)


def main():
    args = parse()
    torch.manual_seed(17)
    loader = DataLoader(Scenes(600, 4), args.batch_size, shuffle=True, drop_last=True)
    model = Detector(keep_priors=args.fixed)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": decayed, "weight_decay": 5e-4}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, args.lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up)

    step = 0
    while step < args.steps:
        for images, boxes, labels in loader:
            scores, offsets, priors = model(images)  # guilty
            loss = detection_loss(scores, offsets, priors, boxes, labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            schedule.step()
            step += 1
            if step % 30 == 0:
                print(f"[{step}/{args.steps}] loss {loss.item():.3f}")
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
