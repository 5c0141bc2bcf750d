"""The rhythm classifier."""

# mypy: ignore-errors

import torch
from engine import Module
from signals import LEADS, clean
from torch import nn


class RhythmClassifier(Module):
    def __init__(self, width: int = 40, cleans: bool = True):
        super().__init__()
        self.cleans = cleans
        self.net = nn.Sequential(
            nn.Conv1d(LEADS, width, 9, stride=2),
            nn.ReLU(),
            nn.Conv1d(width, width, 7, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(8),
            nn.Flatten(),
            nn.Linear(8 * width, 5),
        )

    def on_batch(self, batch):
        beats, rhythm = batch
        if self.cleans:
            beats = torch.from_numpy(clean(beats.numpy()))  # guilty
        return beats, rhythm

    def training_step(self, batch):
        beats, rhythm = batch
        return nn.functional.cross_entropy(self.net(beats), rhythm)
