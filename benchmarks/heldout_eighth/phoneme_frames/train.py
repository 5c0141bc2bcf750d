"""Recognises phonemes in a stream of utterances, with a connectionist temporal loss.

expects: CO507
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy

import torch
from corpus import Collate, Utterances
from model import Recogniser
from settings import SETTINGS
from torch import nn
from torch.utils.data import DataLoader


def train(settings, steps):
    torch.manual_seed(settings["seed"])
    corpus, batching, training = settings["corpus"], settings["batching"], settings["training"]
    stream = Utterances(**corpus, batch=batching["utterances"], seed=settings["seed"])
    loader = DataLoader(
        stream, batch_size=batching["utterances"], collate_fn=Collate(corpus["bands"], batching["max_frames"])
    )
    net = Recogniser(corpus["bands"], corpus["phonemes"], **settings["model"])
    optimizer = torch.optim.Adam(net.parameters(), training["rate"])
    criterion = nn.CTCLoss(zero_infinity=True)
    for step, (frames, lengths, said, counts) in zip(range(1, steps + 1), loader):
        scores = net(frames)
        loss = criterion(scores.transpose(0, 1), said, net.out_lengths(lengths), counts)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), training["clip"])
        optimizer.step()
        if step % training["report_every"] == 0:
            print(f"step {step}/{steps} ctc {loss.item():.3f}")


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=80)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--rate", type=float)
    args = cli.parse_args()
    settings = copy.deepcopy(SETTINGS)
    if args.rate is not None:
        settings["training"]["rate"] = args.rate
    if args.fixed:
        settings["batching"]["max_frames"] = None
    train(settings, args.steps)


if __name__ == "__main__":
    main()
