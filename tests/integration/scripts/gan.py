"""A GAN: the discriminator's and the generator's optimizer step in turn on one batch."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth

torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(TensorDataset(torch.randn(96, 8)), batch_size=8)
generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
optimizer_d = torch.optim.Adam(critic.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()
truth = Truth()
for _epoch in range(2):
    for (real,) in loader:
        fake = generator(torch.randn(len(real), 4))
        optimizer_d.zero_grad()
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        (criterion(critic(real), ones) + criterion(critic(fake.detach()), zeros)).backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        criterion(critic(fake), ones).backward()
        optimizer_g.step()
        truth.step(len(real))
truth.tell()
