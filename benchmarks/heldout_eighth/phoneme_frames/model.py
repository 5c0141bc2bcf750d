"""A small recogniser: a strided convolution over the frames, recurrent layers, and the phonemes' scores."""

# mypy: ignore-errors
import torch.nn.functional as F
from torch import nn


class Recogniser(nn.Module):
    def __init__(self, bands, phonemes, width, layers):
        super().__init__()
        self.front = nn.Conv1d(bands, width, 5, stride=2, padding=2)
        self.body = nn.GRU(width, width, layers, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2 * width)
        self.scores = nn.Linear(2 * width, phonemes + 1)

    def forward(self, frames):
        heard = F.gelu(self.front(frames.transpose(1, 2))).transpose(1, 2)
        hidden, _ = self.body(heard)  # guilty
        return self.scores(self.norm(hidden)).log_softmax(-1)

    @staticmethod
    def out_lengths(lengths):
        return (lengths + 1) // 2
