"""Assigns proteins to families; the data, the network and the settings have files of their own.

expects: IN105
needs: cpu
"""

# mypy: ignore-errors

import argparse
import json
from pathlib import Path

import torch
from datamodule import LETTERS, ProteinData
from net import FamilyNet
from torch.nn.functional import cross_entropy

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(7)
settings = json.loads(Path(__file__).with_name("settings.json").read_text())
data = ProteinData(settings, keep_readers=args.fixed)
model = FamilyNet(LETTERS, settings["width"], settings["families"])
optimizer = torch.optim.Adam(model.parameters(), lr=settings["learning_rate"])
last_round, total = 0, 0.0
for number, (profiles, families) in data.rounds(args.steps):
    if number != last_round:
        if number % 5 == 0:
            print(f"round {last_round}: {total:.2f}")
        last_round, total = number, 0.0
    loss = cross_entropy(model(profiles), families)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
