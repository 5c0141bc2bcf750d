"""Next-note prediction with a gated recurrent network over piano rolls.

expects: HO401, HO402, CO509
needs: gpu
"""

# mypy: ignore-errors

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class GatedRecurrent(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden = hidden
        bound = hidden**-0.5
        self.weight_ih = nn.Parameter(torch.empty(3 * hidden, inputs).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(3 * hidden, hidden).uniform_(-bound, bound))
        self.bias_ih = nn.Parameter(torch.zeros(3 * hidden))
        self.bias_hh = nn.Parameter(torch.zeros(3 * hidden))

    def forward(self, x):
        h = x.new_zeros(x.shape[0], self.hidden)
        outputs = []
        for t in range(x.shape[1]):  # guilty
            gi = F.linear(x[:, t], self.weight_ih, self.bias_ih)  # guilty
            gh = F.linear(h, self.weight_hh, self.bias_hh)  # guilty
            i_r, i_z, i_n = gi.chunk(3, dim=1)  # guilty
            h_r, h_z, h_n = gh.chunk(3, dim=1)  # guilty
            reset = torch.sigmoid(i_r + h_r)  # guilty
            update = torch.sigmoid(i_z + h_z)  # guilty
            new = torch.tanh(i_n + reset * h_n)  # guilty
            h = new + update * (h - new)  # guilty
            outputs.append(h)  # guilty
        return torch.stack(outputs, dim=1)  # guilty


class NoteModel(nn.Module):
    def __init__(self, notes, hidden, fixed):
        super().__init__()
        self.embed = nn.Linear(notes, hidden)
        self.cell = GatedRecurrent(hidden, hidden)
        self.readout = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, notes))
        self.library = None
        if fixed:
            self.library = nn.GRU(hidden, hidden, batch_first=True)
            for suffix in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(self.library, suffix + "_l0").data.copy_(getattr(self.cell, suffix).data)
            self.cell = None

    def forward(self, roll):
        x = F.gelu(self.embed(roll))
        h = self.library(x)[0] if self.library is not None else self.cell(x)  # guilty
        return self.readout(h)


def piano_rolls(count, length, notes, device):
    generator = torch.Generator(device).manual_seed(4)
    phase = torch.rand(count, 1, notes, generator=generator, device=device)
    period = torch.randint(4, 32, (count, 1, notes), generator=generator, device=device)
    beat = torch.arange(length, device=device)[None, :, None]
    return ((beat / period + phase) % 1 < 0.12).float()


def train(args):
    torch.manual_seed(4)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    hidden, length, batch = (32, 12, 4) if args.tiny else (512, 160, 96)
    rolls = piano_rolls(1536 if not args.tiny else 16, length + 1, 88, device)
    model = NoteModel(88, hidden, args.fixed).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    step = 0
    while step < args.steps:
        for chosen in torch.randperm(len(rolls), device=device).split(batch):
            if step == args.steps:
                break
            roll = rolls[chosen]
            logits = model(roll[:, :-1])
            loss = F.binary_cross_entropy_with_logits(logits, roll[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 100 == 0:
                print(f"{step:5d} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    train(parser.parse_args())
