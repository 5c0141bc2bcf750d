"""PPO in one file, in the manner of CleanRL, on a vectorised cart-pole.

expects: HO402
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.distributions.categorical import Categorical


class VecPole:
    """Cart-poles that run side by side."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.state = self.rng.uniform(-0.05, 0.05, (n, 4))

    def step(self, action):
        x, v, th, w = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        temp = (force + 0.05 * w**2 * np.sin(th)) / 1.1
        acc = (9.8 * np.sin(th) - np.cos(th) * temp) / (0.5 * (4 / 3 - 0.1 * np.cos(th) ** 2 / 1.1))
        xacc = temp - 0.05 * acc * np.cos(th) / 1.1
        self.state = np.stack([x + 0.02 * v, v + 0.02 * xacc, th + 0.02 * w, w + 0.02 * acc], 1)
        done = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.21)
        self.state[done] = self.rng.uniform(-0.05, 0.05, (int(done.sum()), 4))
        return self.state.astype(np.float32), np.ones(self.n, np.float32), done.astype(np.float32)


class Agent(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.critic = nn.Sequential(
            nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )
        self.actor = nn.Sequential(
            nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )

    def act(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x).squeeze(-1)


def advantages(rewards, values, dones, last, args):
    adv = torch.zeros_like(rewards)
    if args.fixed:
        carry = torch.zeros(args.num_envs)
        for t in reversed(range(args.num_steps)):
            nxt = last if t == args.num_steps - 1 else values[t + 1]
            delta = rewards[t] + args.gamma * nxt * (1 - dones[t]) - values[t]
            carry = delta + args.gamma * args.lam * (1 - dones[t]) * carry
            adv[t] = carry
        return adv
    for e in range(args.num_envs):  # guilty
        carry = 0.0
        for t in reversed(range(args.num_steps)):  # guilty
            nxt = last[e] if t == args.num_steps - 1 else values[t + 1, e]  # guilty
            alive = 1 - dones[t, e]  # guilty
            delta = rewards[t, e] + args.gamma * nxt * alive - values[t, e]  # guilty
            carry = delta + args.gamma * args.lam * alive * carry  # guilty
            adv[t, e] = carry  # guilty
    return adv


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=384, help="optimizer steps")
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--num-envs", type=int, default=32)
    p.add_argument("--num-steps", type=int, default=64)
    p.add_argument("--gamma", type=float, default=0.99)
    p.add_argument("--lam", type=float, default=0.95)
    args = p.parse_args()
    torch.manual_seed(1)
    envs, agent = VecPole(args.num_envs, 1), Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    shape = (args.num_steps, args.num_envs)
    obs, actions = torch.zeros((*shape, 4)), torch.zeros(shape)
    logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(4))
    next_obs = torch.from_numpy(envs.state.astype(np.float32))
    taken = 0
    while taken < args.steps:
        for t in range(args.num_steps):
            obs[t] = next_obs
            with torch.no_grad():
                action, logprob, _, value = agent.act(next_obs)
            actions[t], logprobs[t], values[t] = action, logprob, value
            state, reward, done = envs.step(action.numpy())
            rewards[t], dones[t] = torch.from_numpy(reward), torch.from_numpy(done)
            next_obs = torch.from_numpy(state)
        with torch.no_grad():
            adv = advantages(rewards, values, dones, agent.critic(next_obs).squeeze(-1), args)  # guilty
        returns = adv + values
        flat = [z.reshape(-1, *z.shape[2:]) for z in (obs, actions, logprobs, adv, returns)]
        for _ in range(4):
            for idx in torch.randperm(args.num_envs * args.num_steps).chunk(4):
                o, a, lp, ad, ret = (z[idx] for z in flat)
                _, newlp, entropy, v = agent.act(o, a)
                ratio = (newlp - lp).exp()
                ad = (ad - ad.mean()) / (ad.std() + 1e-8)
                pg = torch.max(-ad * ratio, -ad * ratio.clamp(0.8, 1.2)).mean()
                loss = pg - 0.01 * entropy.mean() + 0.5 * ((v - ret) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                taken += 1
        print(f"update {taken}: loss {loss.item():.3f}, done {dones.sum().item():.0f}")


if __name__ == "__main__":
    main()
