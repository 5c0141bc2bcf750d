"""A compiled step that is compiled again, because a number in it changes every time.

expects: HO407
needs: either
"""
# mypy: ignore-errors

import argparse

import torch
import torch._dynamo
from torch import nn

torch._dynamo.config.cache_size_limit = 1000
torch._dynamo.config.accumulated_cache_size_limit = 1000
torch._dynamo.config.specialize_float = True


class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))

    def forward(self, x, temperature):
        return torch.log_softmax(self.layers(x) / temperature, dim=-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = Annealed().to(device)
    compiled = torch.compile(net, backend="aot_eager", dynamic=False)  # guilty
    optimizer = torch.optim.Adam(net.parameters())
    x, y = torch.randn(256, 64, device=device), torch.randint(0, 8, (256,), device=device)
    for step in range(args.steps):
        temperature = 1.0 + 1.0 / (step + 1)
        if args.fixed:
            temperature = torch.full((), temperature, device=device)
        loss = nn.functional.nll_loss(compiled(x, temperature), y)  # guilty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
