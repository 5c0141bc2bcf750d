"""Reinforcement learning (advantage actor-critic) on a herd of pendulums simulated with numpy.

expects: none
needs: cpu
"""

# mypy: ignore-errors

import argparse

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal


class Herd:
    """Many pendulums at once; the reward is for being upright and calm."""

    def __init__(self, count: int, seed: int = 0):
        self.rng = np.random.default_rng(seed)
        self.angle = self.rng.uniform(-np.pi, np.pi, count)
        self.speed = np.zeros(count)

    def look(self) -> torch.Tensor:
        seen = np.stack([np.cos(self.angle), np.sin(self.angle), self.speed], 1)
        return torch.from_numpy(seen.astype(np.float32))

    def push(self, force: np.ndarray):
        force = np.clip(force, -2, 2)
        self.speed = np.clip(self.speed + 0.75 * np.sin(self.angle) + 0.15 * force, -8, 8)
        self.angle = (self.angle + 0.05 * self.speed + np.pi) % (2 * np.pi) - np.pi
        reward = -(self.angle**2) - 0.1 * self.speed**2 - 0.001 * force**2
        return self.look(), torch.from_numpy(reward.astype(np.float32))


class ActorCritic(nn.Module):
    def __init__(self, width: int = 192):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.action, self.value = nn.Linear(width, 1), nn.Linear(width, 1)
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, seen):
        hidden = self.body(seen)
        return Normal(2 * self.action(hidden).tanh().squeeze(-1), self.log_std.exp()), self.value(hidden).squeeze(-1)


def play(herd, policy, seen, length):
    looks, pushes, rewards = [], [], []
    with torch.no_grad():
        for _ in range(length):
            push = policy(seen)[0].sample()
            looks.append(seen)
            pushes.append(push)
            seen, reward = herd.push(push.numpy())
            rewards.append(reward)
        returns = [policy(seen)[1]]
    for reward in reversed(rewards):
        returns.append(reward + 0.97 * returns[-1])
    return seen, torch.cat(looks), torch.cat(pushes), torch.cat(returns[:0:-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=110)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    herd, policy = Herd(256), ActorCritic()
    optimizer = torch.optim.Adam(policy.parameters(), lr=7e-4)
    seen = herd.look()
    for step in range(args.steps):
        seen, looks, pushes, returns = play(herd, policy, seen, 8)
        chances, values = policy(looks)
        advantage = (returns - values).detach()
        loss = -(chances.log_prob(pushes) * advantage).mean() + 0.5 * (returns - values).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        if step % 25 == 0:
            print(f"update {step}: mean return {returns.mean().item():.2f}")


if __name__ == "__main__":
    main()
