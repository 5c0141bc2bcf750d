"""REINFORCE on a simple lander; many landers fly at once, and the policy learns after each flight.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
from torch import nn
from torch.distributions import Categorical


class Landers:
    """Height and speed; the choice is between falling, a weak thrust and a strong one."""

    def __init__(self, count):
        self.count = count
        self.thrust = torch.tensor([0.0, 0.08, 0.2])

    def reset(self):
        self.state = torch.stack([torch.rand(self.count) + 1, torch.zeros(self.count)], 1)
        return self.state

    def step(self, action):
        height, speed = self.state.unbind(1)
        speed = speed - 0.06 + self.thrust[action]
        height = (height + 0.1 * speed).clamp(min=0)
        self.state = torch.stack([height, torch.where(height > 0, speed, 0.0)], 1)
        reward = torch.where((height == 0) & (speed.abs() > 0.3), -speed.abs(), 0.0) - 0.01 * height - 0.1 * speed**2
        return self.state, reward


class Policy(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3)
        )

    def forward(self, state):
        return Categorical(logits=self.net(state))


def fly(landers, policy, length):
    state, log_probs, rewards = landers.reset(), [], []
    for _ in range(length):
        choice = policy(state)
        action = choice.sample()
        state, reward = landers.step(action)
        log_probs.append(choice.log_prob(action))
        rewards.append(reward)
    return torch.stack(log_probs), torch.stack(rewards)


def returns_of(rewards, discount=0.98):
    returns, running = [], torch.zeros_like(rewards[0])
    for reward in reversed(rewards):
        running = reward + discount * running
        returns.append(running)
    return torch.stack(returns[::-1])


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--flights", type=int, default=80)
    options = cli.parse_args()
    torch.manual_seed(71)
    torch.set_num_threads(1)
    landers, policy = Landers(128), Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    for flight in range(options.flights):
        log_probs, rewards = fly(landers, policy, 20)
        returns = returns_of(rewards)
        advantage = (returns - returns.mean(1, keepdim=True)) / (returns.std() + 1e-6)
        loss = -(log_probs * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if flight % 20 == 0:
            print(f"flight {flight}: return {returns[0].mean().item():.3f}")
