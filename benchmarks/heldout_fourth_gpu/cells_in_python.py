"""Handwriting as strokes: three recurrent layers over a long pen track, a mixture of Gaussians at the end.

expects: HO401, HO402
needs: gpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn as nn


class UnrolledLSTM(nn.Module):
    """Layers of cells, unrolled over time."""

    def __init__(self, inputs, hidden, layers):
        super().__init__()
        sizes = [inputs] + [hidden] * (layers - 1)
        self.cells = nn.ModuleList(nn.LSTMCell(size, hidden) for size in sizes)
        self.hidden = hidden

    def forward(self, x):
        batch = x.shape[0]
        for cell in self.cells:
            h = x.new_zeros(batch, self.hidden)
            c = x.new_zeros(batch, self.hidden)
            out = []
            for t in range(x.shape[1]):
                h, c = cell(x[:, t], (h, c))  # guilty
                out.append(h)
            x = torch.stack(out, 1)
        return x


class FusedLSTM(nn.LSTM):
    def __init__(self, inputs, hidden, layers):
        super().__init__(inputs, hidden, layers, batch_first=True)

    def forward(self, x):
        return super().forward(x)[0]


class Writer(nn.Module):
    def __init__(self, rnn, hidden, mixtures=20):
        super().__init__()
        self.rnn = rnn
        self.head = nn.Linear(hidden, mixtures * 6 + 1)
        self.mixtures = mixtures

    def loss(self, strokes):
        out = self.head(self.rnn(strokes[:, :-1]))  # guilty
        target = strokes[:, 1:]
        lift = out[..., -1]
        pi, mx, my, sx, sy, rho = out[..., :-1].unflatten(-1, (6, self.mixtures)).unbind(-2)
        rho = torch.tanh(rho) * 0.95
        dx = (target[..., :1] - mx) * torch.exp(-sx)
        dy = (target[..., 1:2] - my) * torch.exp(-sy)
        z = dx**2 + dy**2 - 2 * rho * dx * dy
        logp = -z / (2 * (1 - rho**2)) - sx - sy - 0.5 * torch.log(1 - rho**2) - math.log(2 * math.pi)
        mixture = torch.logsumexp(pi.log_softmax(-1) + logp, -1)
        return nn.functional.binary_cross_entropy_with_logits(lift, target[..., 2]) - mixture.mean()


def tracks(batch, length, device, g):
    t = torch.arange(length, device=device) / 8
    f = torch.rand(batch, 1, 2, device=device, generator=g) + 0.5
    move = torch.sin(t.view(1, -1, 1) * f) + 0.1 * torch.randn(batch, length, 2, device=device, generator=g)
    lift = (torch.rand(batch, length, 1, device=device, generator=g) < 0.05).float()
    return torch.cat([move, lift], 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device, cuda = torch.device(args.device), args.device != "cpu"
    batch, length, hidden = (256, 257, 768) if cuda else (2, 9, 16)
    g = torch.Generator(device=device).manual_seed(1)
    rnn = (FusedLSTM if args.fixed else UnrolledLSTM)(3, hidden, 3)
    model = Writer(rnn, hidden).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=cuda)
    for step in range(1, args.steps + 1):
        loss = model.loss(tracks(batch, length, device, g))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step} nll {loss.item():.4f}")


if __name__ == "__main__":
    main()
