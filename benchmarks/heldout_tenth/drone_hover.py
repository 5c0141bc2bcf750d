"""Learns to hold a drone in place from logged flights: offline TD3 with behaviour cloning, twin critics, own buffer.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

STATE, ACTION = 12, 4


class Flight:
    """Linear model around hover: place, speed, attitude and body rates."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.a = np.eye(STATE, dtype=np.float32)
        self.a[:3, 3:6] = self.a[6:9, 9:12] = 0.05 * np.eye(3)
        self.a[3:6, 6:9] = 0.2 * np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 0.2]])
        self.a[9:, 9:] *= 0.9
        self.b = np.zeros((ACTION, STATE), np.float32)
        self.b[0, 5], self.b[1, 9], self.b[2, 10], self.b[3, 11] = 0.4, 0.5, 0.5, 0.3
        self.gain = np.zeros((STATE, ACTION), np.float32)
        self.gain[[2, 5], 0] = -0.6, -0.9
        self.gain[[1, 4, 6, 9], 1] = 0.1, 0.25, -1.0, -0.6
        self.gain[[0, 3, 7, 10], 2] = -0.1, -0.25, -1.0, -0.6
        self.gain[[8, 11], 3] = -0.5, -0.6
        self.rng = rng

    def log(self, drones, length):
        """Flights of a noisy pilot, all drones at once."""
        s = self.rng.normal(0, 0.7, (drones, STATE)).astype(np.float32)
        rows = []
        for _ in range(length):
            noise = self.rng.standard_normal((drones, ACTION), dtype=np.float32)
            a = np.clip(s @ self.gain + 0.3 * noise, -1, 1)
            gust = 0.01 * self.rng.standard_normal((drones, STATE), dtype=np.float32)
            following = np.clip(s @ self.a + a @ self.b + gust, -5, 5)
            reward = 1 - (following[:, :3] ** 2).sum(1) - 0.1 * (following[:, 6:9] ** 2).sum(1) - 0.02 * (a**2).sum(1)
            rows.append((s, a, reward[:, None], following))
            s = following
        return [np.concatenate(part) for part in zip(*rows)]


class Replay:
    def __init__(self, s, a, reward, following, seed, modern=False):
        self.parts = [s, a, reward.astype(np.float32), following]
        self.size = len(s)
        self.draw = np.random.default_rng(seed).choice if modern else np.random.RandomState(seed).choice

    def sample(self, count):
        rows = self.draw(self.size, count, replace=False)  # guilty
        return [torch.from_numpy(part[rows]) for part in self.parts]


def mlp(inputs, outputs, width=256):
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


class TD3BC:
    def __init__(self, discount=0.97, tau=0.005, weight=2.5):
        self.discount, self.tau, self.weight = discount, tau, weight
        self.actor, self.critics = mlp(STATE, ACTION), nn.ModuleList([mlp(STATE + ACTION, 1) for _ in range(2)])
        self.slow_actor, self.slow_critics = copy.deepcopy(self.actor), copy.deepcopy(self.critics)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), 5e-4)
        self.critic_opt = torch.optim.Adam(self.critics.parameters(), 5e-4)

    def goal(self, reward, following):
        with torch.no_grad():
            noise = (0.2 * torch.randn(len(following), ACTION)).clamp(-0.5, 0.5)
            a = (torch.tanh(self.slow_actor(following)) + noise).clamp(-1, 1)
            pair = torch.cat([following, a], 1)
            return reward + self.discount * torch.min(*(critic(pair) for critic in self.slow_critics))

    def update_critics(self, s, a, reward, following):
        goal, pair = self.goal(reward, following), torch.cat([s, a], 1)
        loss = sum(F.mse_loss(critic(pair), goal) for critic in self.critics)
        self.critic_opt.zero_grad()
        loss.backward()
        self.critic_opt.step()
        return loss.item()

    def update_actor(self, s, a):
        self.critics.requires_grad_(False)
        own = torch.tanh(self.actor(s))
        value = self.critics[0](torch.cat([s, own], 1))
        cloning = F.mse_loss(own, a)
        loss = cloning - self.weight * value.mean() / value.detach().abs().mean() * 0.1
        self.actor_opt.zero_grad()
        loss.backward()
        self.actor_opt.step()
        self.critics.requires_grad_(True)
        with torch.no_grad():
            for slow, fast in ((self.slow_actor, self.actor), (self.slow_critics, self.critics)):
                torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), self.tau)
        return cloning.item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=1500)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=192)
    args = cli.parse_args()
    torch.manual_seed(17)
    replay = Replay(*Flight(seed=1).log(drones=1500, length=200), seed=2, modern=args.fixed)
    agent = TD3BC()
    print(f"{replay.size} transitions")
    errors, cloning = [], 0.0
    for step in range(1, args.steps + 1):
        s, a, reward, following = replay.sample(args.batch)
        errors.append(agent.update_critics(s, a, reward, following))
        if step % 2 == 0:
            cloning = agent.update_actor(s, a)
        if step % 200 == 0 or step == args.steps:
            print(f"step {step} critic error {np.mean(errors[-200:]):.3f} distance from pilot {cloning:.3f}")


if __name__ == "__main__":
    main()
