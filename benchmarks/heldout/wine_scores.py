"""Scores of wines from laboratory values held in memory; the loader does without workers because it has little to do.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
args = parser.parse_args()

torch.manual_seed(70)
torch.set_num_threads(1)
values = torch.randn(6000, 12)
scores = (values[:, :3].sum(1) + values[:, 3] * values[:, 4]).unsqueeze(1)
train_set, test_set = random_split(TensorDataset(values, scores), [5000, 1000])
train = DataLoader(train_set, batch_size=125, shuffle=True)
test = DataLoader(test_set, batch_size=500)

model = nn.Sequential(
    nn.Linear(12, 640),
    nn.SiLU(),
    nn.Linear(640, 640),
    nn.SiLU(),
    nn.Linear(640, 640),
    nn.SiLU(),
    nn.Linear(640, 1),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
for epoch in range(args.epochs):
    model.train()
    for x, y in train:
        loss = nn.functional.huber_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    schedule.step()
    model.eval()
    with torch.no_grad():
        error = sum((model(x) - y).abs().sum().item() for x, y in test) / len(test_set)
    print(f"epoch {epoch}: train {loss.item():.4f} test error {error:.4f}")
