"""Weather of the next hour at all stations, from a stream of shards; settings in config.toml.

expects: IN112
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile
import tomllib
from itertools import pairwise
from pathlib import Path

import torch
from stream import ShardStream, write_shards
from torch import nn
from torch.utils.data import DataLoader


def build(size_in, size_out, hidden, layers):
    sizes = [size_in, *[hidden] * layers]
    steps = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.SiLU())]
    return nn.Sequential(*steps, nn.Linear(hidden, size_out))


def train(config, folder):
    data, loading, model_config = config["data"], config["loader"], config["model"]
    loader = DataLoader(  # guilty
        ShardStream(folder, loading["passes"]),
        batch_size=loading["batch_size"],
        num_workers=loading["num_workers"],
        prefetch_factor=loading["ahead"],
    )
    lr = model_config.pop("lr")
    model = build(data["hours"] * data["stations"], data["stations"], **model_config)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    for step, (history, following) in enumerate(loader, 1):
        loss = nn.functional.mse_loss(model(history), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: mse {loss.item():.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("config.toml"))
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = tomllib.loads(args.config.read_text())
    if args.fixed:
        config["loader"] |= config["loader"]["fixed"]
    with tempfile.TemporaryDirectory() as temporary:
        write_shards(Path(temporary), **config["data"])
        train(config, Path(temporary))
