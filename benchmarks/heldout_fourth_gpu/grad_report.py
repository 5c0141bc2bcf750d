"""A deep mixer for tables of sensors, with a report on the health of its gradients in every step.

expects: SY304
needs: gpu
"""

# mypy: ignore-errors
import argparse
import collections

import torch
import torch.nn as nn
import torch.nn.functional as F


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.across = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.within = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, sensors, tokens, dim, depth):
        super().__init__()
        self.inp = nn.Linear(sensors, dim)
        self.blocks = nn.ModuleList(MixerBlock(tokens, dim) for _ in range(depth))
        self.out = nn.Linear(dim, sensors)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


class GradientReport:
    """Norms of weights and gradients by layer; says when one of them explodes or dies."""

    def __init__(self, model):
        self.params = dict(model.named_parameters())
        self.history = collections.defaultdict(lambda: collections.deque(maxlen=100))

    def update(self):
        for name, p in self.params.items():
            g, w = p.grad.norm().item(), p.detach().norm().item()  # guilty
            self.history[name].append((g, w, g / (w + 1e-8)))
            if not torch.isfinite(p.grad).all():  # guilty
                print(f"gradient of {name} is not finite")

    def update_at_once(self):
        g = torch.stack(torch._foreach_norm([p.grad for p in self.params.values()]))
        w = torch.stack(torch._foreach_norm([p.detach() for p in self.params.values()]))
        for name, a, b in zip(self.params, *torch.stack([g, w]).tolist(), strict=True):
            self.history[name].append((a, b, a / (b + 1e-8)))

    def worst(self):
        return max(self.history, key=lambda name: self.history[name][-1][2])


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=450)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--device", default="cuda")
    args = cli.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device, cuda = torch.device(args.device), args.device != "cpu"
    tokens, dim, depth, batch = (128, 512, 24, 64) if cuda else (8, 16, 2, 2)
    model = Mixer(40, tokens, dim, depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=cuda)
    report = GradientReport(model)
    mix = torch.randn(40, 40, device=device) / 6
    for step in range(1, args.steps + 1):
        x = torch.randn(batch, tokens, 40, device=device).cumsum(1) / 8
        with torch.autocast(device.type, torch.bfloat16):
            loss = F.mse_loss(model(x), torch.tanh(x @ mix))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if args.fixed:
            if step % 50 == 0:
                report.update_at_once()
        else:
            report.update()  # guilty
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} liveliest {report.worst()}")


if __name__ == "__main__":
    main()
