"""An encoder and a decoder that looks back."""

# mypy: ignore-errors

import torch
from torch import nn


class Translator(nn.Module):
    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(2 * width, vocabulary)

    def forward(self, source, target):
        memory, last = self.encoder(self.words(source))
        shifted = torch.cat([torch.zeros_like(target[:, :1]), target[:, :-1]], 1)
        states, _ = self.decoder(self.words(shifted), last)
        weights = (states @ memory.transpose(1, 2)).softmax(-1)
        return self.out(torch.cat([states, weights @ memory], -1))
