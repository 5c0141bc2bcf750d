"""Tells cicada species by the rhythm of their clicks: a bank of leaky integrators under a trained readout.

expects: CO521
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn

FRAMES, CHANNELS, SPECIES = 220, 6, 7
QUICK, LASTING = 0.52, 0.9


def make_choruses(count, seed):
    """Clicks of one phrase, then silence up to the end of the clip: (count, FRAMES, CHANNELS)."""
    g = torch.Generator().manual_seed(seed)
    species = torch.randint(SPECIES, (count,), generator=g)
    period = 2 + species.float() * 0.7
    length = torch.randint(14, 40, (count,), generator=g)
    time = torch.arange(FRAMES)[None]
    phase = torch.rand(count, 1, generator=g) * period[:, None]
    on = ((time + phase) % period[:, None] < 1) & (time < length[:, None])
    pitch = torch.rand(count, CHANNELS, generator=g) + F.one_hot(species % CHANNELS, CHANNELS)
    jitter = torch.rand(count, FRAMES, 1, generator=g) * 0.5 + 0.5
    return on[..., None] * jitter * pitch[:, None], species


class LeakyBank(nn.Module):
    """Integrators of many time constants for each channel; nothing in it is trained."""

    def __init__(self, constants, floor=0.0):
        super().__init__()
        self.register_buffer("decay", torch.linspace(QUICK, LASTING, constants)[:, None])
        self.floor = floor

    def forward(self, clips):
        state = clips.new_zeros(len(clips), len(self.decay), CHANNELS)
        states = []
        for frame in clips.unbind(1):
            state = state * self.decay + frame[:, None]  # guilty
            if self.floor:
                state = F.threshold(state, self.floor, 0.0)
            states.append(state.flatten(1))
        return torch.stack(states, 1)


class Chorus(nn.Module):
    def __init__(self, constants=32, width=64, floor=0.0):
        super().__init__()
        self.bank = LeakyBank(constants, floor)
        self.mix = nn.Linear(constants * CHANNELS, width)
        self.gate = nn.Linear(constants * CHANNELS, width)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, SPECIES))

    def forward(self, clips):
        with torch.no_grad():
            states = self.bank(clips)
        gated = torch.tanh(self.mix(states)) * torch.sigmoid(self.gate(states))  # guilty
        return self.head(gated.sum(1) / FRAMES**0.5)


def accuracy(model, clips, species):
    model.eval()
    with torch.no_grad():
        share = (model(clips).argmax(1) == species).float().mean().item()
    model.train()
    return share


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(19)

    clips, species = make_choruses(1_200, 43)
    held_clips, held_species = make_choruses(64, 44)
    model = Chorus(floor=1e-20 if args.fixed else 0.0)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    order, at = torch.randperm(len(clips)), 0
    for step in range(1, args.steps + 1):
        if at + args.batch_size > len(order):
            order, at = torch.randperm(len(clips)), 0
        rows = order[at : at + args.batch_size]
        at += args.batch_size
        loss = F.cross_entropy(model(clips[rows]), species[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # guilty
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f} held out {accuracy(model, held_clips, held_species):.3f}")


if __name__ == "__main__":
    main()
