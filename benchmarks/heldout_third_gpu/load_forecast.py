"""Forecasts of electric load with a deep residual MLP; a training and a validation loader.

expects: CA601
needs: gpu
"""

# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler


class LoadWindows(Dataset):
    """Windows of a few hundred meters; an index is a whole batch of windows."""

    def __init__(self, series, history, horizon, stride):
        self.windows = series.unfold(1, history + horizon, stride)
        self.history = history
        self.per_meter = self.windows.shape[1]

    def __len__(self):
        return self.windows.shape[0] * self.per_meter

    def __getitem__(self, indices):
        indices = torch.as_tensor(indices)
        chosen = self.windows[indices // self.per_meter, indices % self.per_meter]
        return chosen[:, : self.history], chosen[:, self.history :]


class ResidualStack(nn.Module):
    def __init__(self, history, horizon, width, depth):
        super().__init__()
        self.enter = nn.Linear(history, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )
        self.leave = nn.Linear(width, horizon)

    def forward(self, x):
        level = x.mean(1, keepdim=True)
        h = self.enter(x - level)
        for block in self.blocks:
            h = h + block(h)
        return self.leave(h) + level


def make_series(meters, hours):
    generator = torch.Generator().manual_seed(1)
    hour = torch.arange(hours)
    phase = torch.rand(meters, 1, generator=generator) * 6.28
    daily = torch.sin(hour * 6.2832 / 24 + phase)
    weekly = torch.sin(hour * 6.2832 / 168 + 2 * phase)
    return 2 + daily + 0.5 * weekly + 0.2 * torch.randn(meters, hours, generator=generator)


def loader_of(dataset, batch_size, shuffle, workers):
    order = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
    return DataLoader(
        dataset,
        sampler=BatchSampler(order, batch_size, drop_last=True),
        batch_size=None,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        persistent_workers=True,
        prefetch_factor=6,
    )


@torch.no_grad()
def validate(model, batches, device):
    model.eval()
    total = torch.zeros((), device=device)
    for x, y in batches:  # guilty
        with torch.autocast(device, dtype=torch.bfloat16):
            predicted = model(x)  # guilty
        total += (predicted.float() - y).abs().mean()
    model.train()
    return total / len(batches)


def cycle(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=420)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    history, horizon = 336, 48
    meters, width, depth, batch = (4, 64, 2, 16) if args.tiny else (256, 2048, 8, 4096)
    series = make_series(meters, 2600)
    training = loader_of(LoadWindows(series[:, :1500], history, horizon, 4), batch, True, 2)
    held_out = loader_of(LoadWindows(series[:, 1500:], history, horizon, 2), batch, False, 2)
    validation = [(x.to(device), y.to(device)) for x, y in held_out]
    model = ResidualStack(history, horizon, width, depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    best = torch.full((), torch.inf, device=device)
    every = 140 if args.fixed else 6
    batches = cycle(training)
    for step in range(1, args.steps + 1):
        x, y = next(batches)
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            predicted = model(x)
        loss = nn.functional.huber_loss(predicted.float(), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % every == 0:  # guilty
            best = torch.minimum(best, validate(model, validation, device))  # guilty
        if step % 140 == 0:
            print(f"step {step}: loss {loss.item():.4f}, best error {best.item():.4f}")


if __name__ == "__main__":
    main()
