"""A small language model trained with gradient accumulation, evaluated and saved now and then.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
import yaml
from model import Decoder


def tokens(n, vocab=80):
    g = torch.Generator().manual_seed(4)
    jump = torch.randint(1, 5, (n,), generator=g)
    return jump.cumsum(0) % vocab


def get_batch(data, cfg):
    start = torch.randint(0, len(data) - cfg["block_size"] - 1, (cfg["batch_size"], 1))
    window = data[start + torch.arange(cfg["block_size"] + 1)]
    return window[:, :-1], window[:, 1:]


def loss_of(model, batch):
    x, y = batch
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def estimate(model, data, cfg):
    model.eval()
    value = sum(loss_of(model, get_batch(data, cfg)).item() for _ in range(cfg["eval_batches"]))
    model.train()
    return value / cfg["eval_batches"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    cfg = yaml.safe_load(Path(__file__).with_name("config.yaml").read_text())
    torch.manual_seed(0)
    data = tokens(60000)
    train, val = data[:54000], data[54000:]
    model = Decoder(80, cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=0.1)
    with tempfile.TemporaryDirectory() as out:
        for step in range(1, args.steps + 1):
            total = 0.0
            for _ in range(cfg["accumulate"]):
                loss = loss_of(model, get_batch(train, cfg)) / cfg["accumulate"]
                loss.backward()
                total += loss.item()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step % cfg["eval_every"] == 0:
                print(f"step {step}: train {total:.4f} val {estimate(model, val, cfg):.4f}")
            if step % cfg["save_every"] == 0:
                torch.save(model.state_dict(), Path(out) / "ckpt.pt")


if __name__ == "__main__":
    main()
