"""Steers submarines by noisy sonar alone: a recurrent actor-critic on a simulator it sees only in part.

expects: CO520
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
from torch import nn
from torch.distributions import Categorical

PINGS, TURNS = 10, 5


class Sea:
    """Boats that must reach a beacon; the sonar tells ranges to the rocks, and only now and then the beacon's side."""

    def __init__(self, boats, rocks=12):
        self.boats, self.rocks = boats, 4 * torch.rand(rocks, 2) - 2
        self.rays = torch.arange(PINGS - 2) * (6.2832 / (PINGS - 2))

    def reset(self):
        self.place = 3 * torch.rand(self.boats, 2) - 1.5
        self.heading = 6.2832 * torch.rand(self.boats)
        self.beacon = 3 * torch.rand(self.boats, 2) - 1.5
        return self.ping()

    def ping(self):
        away = self.rocks - self.place[:, None]
        side = torch.atan2(away[..., 1], away[..., 0]) - self.heading[:, None]
        aim = torch.cos(side[:, None] - self.rays[:, None])
        ranges = (aim.clamp(min=0) ** 8 / (0.1 + away.norm(dim=-1)[:, None])).amax(-1)
        to = self.beacon - self.place
        bearing = torch.atan2(to[:, 1], to[:, 0]) - self.heading
        heard = (torch.rand(self.boats) < 0.3).float()
        seen = torch.cat([ranges, (bearing.sin() * heard)[:, None], (bearing.cos() * heard)[:, None]], 1)
        return seen + 0.05 * torch.randn_like(seen)

    def step(self, turns):
        before = (self.beacon - self.place).norm(dim=1)
        self.heading = self.heading + 0.4 * (turns - TURNS // 2)
        self.place = self.place + 0.15 * torch.stack([self.heading.cos(), self.heading.sin()], 1)
        near = torch.cdist(self.place, self.rocks).amin(1)
        reward = before - (self.beacon - self.place).norm(dim=1) - 0.3 * (near < 0.15).float()
        return self.ping(), reward


class Helmsman(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.sense = nn.Sequential(nn.Linear(PINGS, width), nn.Tanh())
        self.memory = nn.GRU(width, width, batch_first=True)
        self.turn, self.worth = nn.Linear(width, TURNS), nn.Linear(width, 1)

    def forward(self, pings, hidden=None):
        remembered, hidden = self.memory(self.sense(pings), hidden)
        last = remembered[:, -1]
        return Categorical(logits=self.turn(last)), self.worth(last).squeeze(1), hidden


def voyage(sea, helmsman, horizon, stateful=False):
    """One voyage of the fleet: what was decided, what it was worth, and what it brought."""
    seen, hidden, log = sea.reset(), None, []
    decided, worths, rewards, entropy = [], [], [], 0.0
    for _ in range(horizon):
        if stateful:
            policy, worth, hidden = helmsman(seen[:, None], hidden)
        else:
            log.append(seen)
            policy, worth, _ = helmsman(torch.stack(log, 1))  # guilty
        turns = policy.sample()
        decided.append(policy.log_prob(turns))
        entropy = entropy + policy.entropy().mean()
        worths.append(worth)
        seen, reward = sea.step(turns)
        rewards.append(reward)
    return torch.stack(decided), torch.stack(worths), torch.stack(rewards), entropy / horizon


def returns(rewards, discount=0.95):
    total, out = torch.zeros_like(rewards[0]), []
    for reward in rewards.flip(0):
        total = reward + discount * total
        out.append(total)
    return torch.stack(out[::-1])


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=64)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--boats", type=int, default=24)
    cli.add_argument("--horizon", type=int, default=28)
    args = cli.parse_args()
    torch.manual_seed(17)
    sea, helmsman = Sea(args.boats), Helmsman()
    optimizer = torch.optim.RMSprop(helmsman.parameters(), 7e-4)
    for update in range(1, args.steps + 1):
        decided, worths, rewards, entropy = voyage(sea, helmsman, args.horizon, args.fixed)
        goal = returns(rewards)
        edge = goal - worths.detach()
        edge = (edge - edge.mean()) / (edge.std() + 1e-6)
        loss = -(decided * edge).mean() + 0.5 * (goal - worths).square().mean() - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(helmsman.parameters(), 1.0)
        optimizer.step()
        if update % 10 == 0:
            print(f"update {update} loss {loss.item():.4f} reward {rewards.sum(0).mean().item():.3f}")


if __name__ == "__main__":
    main()
