"""PPO on many carts and poles at once: the environments are numpy arrays, the updates go over minibatches.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class CartPoles:
    def __init__(self, n, seed):
        self.rng, self.n = np.random.default_rng(seed), n
        self.state, self.age = self.rng.uniform(-0.05, 0.05, (n, 4)), np.zeros(n, int)

    def step(self, action):
        x, v, th, w = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        temp = (force + 0.05 * w**2 * np.sin(th)) / 1.1
        acc_th = (9.8 * np.sin(th) - np.cos(th) * temp) / (0.5 * (4 / 3 - 0.1 * np.cos(th) ** 2 / 1.1))
        acc = temp - 0.05 * acc_th * np.cos(th) / 1.1
        self.state = np.stack([x + 0.02 * v, v + 0.02 * acc, th + 0.02 * w, w + 0.02 * acc_th], 1)
        self.age += 1
        done = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.21) | (self.age >= 300)
        length = self.age[done]
        self.state[done] = self.rng.uniform(-0.05, 0.05, (done.sum(), 4))
        self.age[done] = 0
        return self.state.astype(np.float32), done, length


class Agent(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.critic = nn.Sequential(
            nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )
        self.actor = nn.Sequential(
            nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )

    def policy(self, obs):
        return Categorical(logits=self.actor(obs))


def advantages(rewards, dones, values, last):
    gamma, lam = 0.99, 0.95
    out, running = torch.zeros_like(rewards), torch.zeros_like(last)
    for t in reversed(range(len(rewards))):
        live = 1 - dones[t]
        nxt = values[t + 1] if t + 1 < len(values) else last
        running = rewards[t] + gamma * nxt * live - values[t] + gamma * lam * live * running
        out[t] = running
    return out


def rollout(agent, envs, obs, horizon):
    keep = {k: [] for k in ("obs", "act", "logp", "val", "done")}
    lengths = []
    with torch.no_grad():
        for _ in range(horizon):
            x = torch.from_numpy(obs)
            pi = agent.policy(x)
            a = pi.sample()
            obs, done, length = envs.step(a.numpy())
            lengths.extend(length.tolist())
            row = (x, a, pi.log_prob(a), agent.critic(x).squeeze(1), torch.from_numpy(done).float())
            for k, v in zip(keep, row, strict=True):
                keep[k].append(v)
        last = agent.critic(torch.from_numpy(obs)).squeeze(1)
    roll = {k: torch.stack(v) for k, v in keep.items()}
    roll["adv"] = advantages(torch.ones_like(roll["val"]), roll["done"], roll["val"], last)
    return {k: v.flatten(0, 1) for k, v in roll.items()}, obs, lengths


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600, help="gradient steps")
    parser.add_argument("--fixed", action="store_true", help="changes nothing")
    parser.add_argument("--envs", type=int, default=64)
    args = parser.parse_args()
    torch.manual_seed(0)
    envs, agent = CartPoles(args.envs, 0), Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
    obs, step = envs.state.astype(np.float32), 0
    while step < args.steps:
        roll, obs, lengths = rollout(agent, envs, obs, 32)
        returns = roll["adv"] + roll["val"]
        for _ in range(4):
            for idx in torch.randperm(len(returns)).split(512):
                pi = agent.policy(roll["obs"][idx])
                ratio = (pi.log_prob(roll["act"][idx]) - roll["logp"][idx]).exp()
                adv = roll["adv"][idx]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                loss_pi = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
                loss_v = (agent.critic(roll["obs"][idx]).squeeze(1) - returns[idx]).pow(2).mean()
                loss = loss_pi + 0.5 * loss_v - 0.01 * pi.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                step += 1
        print(f"step {step} loss {loss.item():.3f} length {np.mean(lengths or [0]):.1f}")


if __name__ == "__main__":
    main()
