"""Fine-tunes a melody generator with PPO: rewards for staying in key, small leaps and a proper ending.

expects: CO520
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

NOTES, START = 38, 37
MAJOR = torch.tensor([0, 2, 4, 5, 7, 9, 11])


@dataclass
class Settings:
    length: int = 40
    batch: int = 48
    passes: int = 3
    clip: float = 0.2
    entropy: float = 0.01
    rate: float = 7e-4


class Composer(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.embed = nn.Embedding(NOTES, 48)
        self.rnn = nn.GRU(48, width, num_layers=2, batch_first=True)
        self.note, self.value = nn.Linear(width, NOTES - 1), nn.Linear(width, 1)

    def forward(self, tokens, state=None):
        hidden, state = self.rnn(self.embed(tokens), state)
        return self.note(hidden), self.value(hidden).squeeze(-1), state


@torch.no_grad()
def compose(model, batch, length, fixed):
    tokens = torch.full((batch, 1), START)
    state = None
    for _ in range(length):
        if fixed:
            logits, _, state = model(tokens[:, -1:], state)
        else:
            logits, _, _ = model(tokens)  # guilty
        note = torch.multinomial(F.softmax(logits[:, -1], -1), 1)
        tokens = torch.cat([tokens, note], 1)
    return tokens


def rewards(notes):
    """One reward per note: in the key, no wide leaps, few repeats; the tonic at the end counts more."""
    pitch = notes % 12
    in_key = (pitch[..., None] == MAJOR).any(-1).float()
    leap = F.pad((notes[:, 1:] - notes[:, :-1]).abs(), (1, 0), value=2)
    reward = in_key - 0.1 * (leap > 7).float() - 0.2 * (leap == 0).float()
    reward[:, -1] += 4.0 * (pitch[:, -1] == 0)
    return reward


def returns(reward, gamma=0.97):
    ahead = torch.arange(reward.shape[1])
    ahead = ahead[:, None] - ahead[None]
    return reward @ torch.where(ahead >= 0, gamma**ahead, 0.0)


def train_step(model, optimizer, batch, settings):
    tokens, old, advantage, target = batch
    logits, value, _ = model(tokens[:, :-1])
    spread = F.log_softmax(logits, -1)
    new = spread.gather(-1, tokens[:, 1:, None]).squeeze(-1)
    ratio = (new - old).exp()
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - settings.clip, 1 + settings.clip) * advantage)
    entropy = -(spread.exp() * spread).sum(-1).mean()
    loss = -gain.mean() + 0.5 * F.mse_loss(value, target) - settings.entropy * entropy
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return loss.detach()


def roll_out(model, settings, fixed):
    tokens = compose(model, settings.batch, settings.length, fixed)  # guilty
    reward = rewards(tokens[:, 1:])
    target = returns(reward)
    with torch.no_grad():
        logits, value, _ = model(tokens[:, :-1])
        old = F.log_softmax(logits, -1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    advantage = target - value
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    return (tokens, old, advantage, target), reward.sum(1).mean()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(3)
    settings = Settings()
    model = Composer()
    optimizer = torch.optim.Adam(model.parameters(), settings.rate)
    step, rounds = 0, 0
    while step < args.steps:
        batch, score = roll_out(model, settings, args.fixed)
        for _ in range(min(settings.passes, args.steps - step)):
            loss = train_step(model, optimizer, batch, settings)
            step += 1
        rounds += 1
        if rounds % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} reward {score.item():.3f}")


if __name__ == "__main__":
    main()
