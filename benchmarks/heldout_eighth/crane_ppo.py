"""Steers a harbour crane without swinging its load: proximal policy optimisation on a batch of simulators.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal

STATE, ACTIONS = 7, 2


class Cranes:
    """Trolley and hoist of many cranes; the load hangs as a pendulum of changing length."""

    def __init__(self, count):
        self.count = count
        self.reset(torch.ones(count, dtype=torch.bool))

    def reset(self, which):
        fresh = torch.zeros(self.count, STATE)
        fresh[:, 2] = 0.1 * torch.randn(self.count)
        fresh[:, 4] = 1 + torch.rand(self.count)
        fresh[:, 6] = torch.rand(self.count) * 4 - 2
        self.state = torch.where(which[:, None], fresh, self.state) if hasattr(self, "state") else fresh
        self.age = torch.where(which, 0, self.age) if hasattr(self, "age") else torch.zeros(self.count)

    def step(self, actions):
        x, v, swing, spin, rope, haul, goal = self.state.unbind(1)
        push, winch = actions.clamp(-1, 1).unbind(1)
        for _ in range(2):
            v = v + 0.05 * (2 * push - 0.2 * v)
            haul = haul + 0.05 * (winch - haul)
            spin = spin - 0.05 * (9.8 * torch.sin(swing) + 2 * push * torch.cos(swing) + 2 * haul * spin) / rope
            x, swing, rope = x + 0.05 * v, swing + 0.05 * spin, (rope + 0.05 * haul).clamp(0.5, 3)
        self.state = torch.stack([x, v, swing, spin, rope, haul, goal], 1)
        self.age = self.age + 1
        reward = -((x - goal).abs() + 0.5 * swing.abs() + 0.05 * actions.square().sum(1))
        done = (self.age >= 150) | (x.abs() > 5) | (swing.abs() > 1.2)
        self.reset(done)
        return reward, done.float()


class Policy(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(STATE, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, ACTIONS)
        )
        self.critic = nn.Sequential(
            nn.Linear(STATE, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )
        self.spread = nn.Parameter(torch.full((ACTIONS,), -0.5))

    def act(self, states):
        return Normal(self.actor(states), self.spread.exp())

    def value(self, states):
        return self.critic(states).squeeze(1)


@torch.no_grad()
def roll_out(cranes, policy, length):
    rows = []
    for _ in range(length):
        states = cranes.state
        chosen = policy.act(states)
        actions = chosen.sample()
        reward, done = cranes.step(actions)
        rows.append((states, actions, chosen.log_prob(actions).sum(1), policy.value(states), reward, done))
    states, actions, log_prob, values, rewards, dones = (torch.stack(column) for column in zip(*rows))
    after, gain = policy.value(cranes.state), torch.zeros(cranes.count)
    gains = torch.zeros_like(rewards)
    for t in reversed(range(length)):
        surprise = rewards[t] + 0.98 * (1 - dones[t]) * after - values[t]
        gains[t] = gain = surprise + 0.98 * 0.95 * (1 - dones[t]) * gain
        after = values[t]
    flat = [part.flatten(0, 1) for part in (states, actions, log_prob, gains, gains + values)]
    return flat, rewards.mean().item()


def improve(policy, optimizer, rollout, epochs, minibatch, most_kl=0.03):
    """Several passes over the same games, until the policy has moved away too far."""
    updates = 0
    for _ in range(epochs):
        for rows in torch.randperm(len(rollout[0])).split(minibatch):
            states, actions, old, gains, returns = (part[rows] for part in rollout)
            chosen = policy.act(states)
            change = chosen.log_prob(actions).sum(1) - old
            gains = (gains - gains.mean()) / (gains.std() + 1e-6)
            ratio = change.exp()
            surrogate = torch.minimum(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean()
            loss = 0.5 * F.mse_loss(policy.value(states), returns) - surrogate - 0.002 * chosen.entropy().sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
            updates += 1
            if (ratio - 1 - change).mean().item() > most_kl:
                return updates
    return updates


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=32, help="rounds of games and updates")
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--cranes", type=int, default=48)
    cli.add_argument("--length", type=int, default=64)
    args = cli.parse_args()
    torch.manual_seed(107)

    cranes, policy = Cranes(args.cranes), Policy()
    optimizer = torch.optim.Adam(policy.parameters(), 4e-4, eps=1e-5)
    for step in range(1, args.steps + 1):
        rollout, reward = roll_out(cranes, policy, args.length)
        updates = improve(policy, optimizer, rollout, epochs=5, minibatch=256)
        if step % 5 == 0:
            print(f"round {step} reward {reward:.3f} updates {updates}")


if __name__ == "__main__":
    main()
