"""Masked autoencoding of pictures, with an engine, hooks, a moving average and an evaluation now and then.

expects: none
needs: gpu
"""

# mypy: ignore-errors

import argparse

import torch
from autoencoder import MaskedAutoencoder
from engine import Average, Engine, Every, Schedule


class Pictures:
    def __init__(self, count, side, batch, device):
        generator = torch.Generator(device).manual_seed(95)
        shape = (count, 3, side, side)
        self.data = torch.randint(0, 256, shape, generator=generator, device=device, dtype=torch.uint8)
        self.size = batch

    def batch(self, step):
        first = step * self.size % (len(self.data) - self.size + 1)
        return self.data[first : first + self.size].to(torch.bfloat16) / 128 - 1


def report(engine):
    print(f"step {engine.step}: loss {engine.loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(95)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    side, patch, width, depth, batch = (32, 8, 128, 1, 2) if args.tiny else (224, 16, 1024, 6, 384)
    model = MaskedAutoencoder(side, patch, width, depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.05, fused=True)
    data = Pictures(4 * batch, side, batch, device)
    held_out = [Pictures(batch, side, batch, device).batch(0)]

    def evaluate(engine):
        print(f"step {engine.step}: held-out loss {engine.evaluate(held_out).item():.4f}")

    hooks = [Schedule(1.5e-4, 40), Average(0.999), Every(80, report), Every(120, evaluate)]
    Engine(model, optimizer, data, hooks).train(args.steps)


if __name__ == "__main__":
    main()
