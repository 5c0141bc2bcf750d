"""A training that needs nothing: batches are there before they are asked for, and the model is what takes the time.

The remedies that its findings might still call for have nothing to gain. The first number it is given only changes the
seed, the second is how many threads it may use: on a busy machine they wait for each other.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    if len(sys.argv) > 2:
        torch.set_num_threads(int(sys.argv[2]))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    width = 2048 if device.type == "cuda" else 384
    data = TensorDataset(torch.randn(4096, width), torch.randint(0, 10, (4096,)))
    loader = DataLoader(
        data, 64, shuffle=True, num_workers=1, persistent_workers=True, pin_memory=device.type == "cuda"
    )
    layers = [part for _ in range(6) for part in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(width, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(1000):
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
