"""PPO in one file, on a vector of point masses that are simulated with NumPy.

expects: TR202, HO402
needs: gpu
"""

# mypy: ignore-errors

import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


@dataclass
class Config:
    num_envs: int = 64
    num_steps: int = 16
    update_epochs: int = 4
    num_minibatches: int = 2
    hidden: int = 1024
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_coef: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    learning_rate: float = 2.5e-4


class PointMasses:
    """Each environment pushes a point towards a goal, in one of five ways."""

    PUSH = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], dtype=np.float32)

    def __init__(self, num_envs, seed=1):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.normal(size=(num_envs, 4)).astype(np.float32)
        self.goal = self.rng.normal(size=(num_envs, 2)).astype(np.float32)
        self.age = np.zeros(num_envs, dtype=np.int64)

    def observe(self):
        return np.concatenate([self.state, self.goal, self.goal - self.state[:, :2]], axis=1)

    def step(self, actions):
        self.state[:, 2:] = 0.95 * self.state[:, 2:] + 0.05 * self.PUSH[actions]
        self.state[:, :2] += self.state[:, 2:]
        distance = np.linalg.norm(self.goal - self.state[:, :2], axis=1)
        self.age += 1
        done = (distance < 0.1) | (self.age > 120)
        fresh = self.rng.normal(size=self.state.shape).astype(np.float32)
        self.state = np.where(done[:, None], fresh, self.state)
        self.age[done] = 0
        return self.observe(), -distance.astype(np.float32), done.astype(np.float32)


class Agent(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(8, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.actor = nn.Sequential(nn.Linear(8, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.value_head = nn.Linear(hidden, 1)
        self.action_head = nn.Linear(hidden, 5)

    def get_value(self, x):
        return self.value_head(self.critic(x)).squeeze(-1)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.action_head(self.actor(x)), validate_args=False)
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.get_value(x)


def on_device(rows, device, fixed):
    if fixed:
        return torch.from_numpy(rows).to(device)
    return torch.stack([torch.tensor(row, device=device) for row in rows])  # guilty


def rollout(agent, envs, next_obs, cfg, fixed):
    device = next(agent.parameters()).device
    kept = []
    for _ in range(cfg.num_steps):
        obs = on_device(next_obs, device, fixed)  # guilty
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(obs)
        next_obs, reward, done = envs.step(action.cpu().numpy())
        reward = on_device(reward, device, fixed)  # guilty
        done = on_device(done, device, fixed)  # guilty
        kept.append((obs, action, logprob, value, reward, done))
    return next_obs, [torch.stack(column) for column in zip(*kept, strict=True)]


def advantages_of(values, rewards, dones, last_value, cfg):
    advantages, last = torch.zeros_like(rewards), 0
    for t in reversed(range(cfg.num_steps)):
        following = last_value if t == cfg.num_steps - 1 else values[t + 1]
        delta = rewards[t] + cfg.gamma * following * (1 - dones[t]) - values[t]
        last = delta + cfg.gamma * cfg.gae_lambda * (1 - dones[t]) * last
        advantages[t] = last
    return advantages


def update(agent, optimizer, batch, cfg):
    obs, actions, logprobs, advantages, returns = batch
    size = len(obs)
    for _ in range(cfg.update_epochs):
        order = torch.randperm(size, device=obs.device)
        for mb in order.chunk(cfg.num_minibatches):
            _, logprob, entropy, value = agent.get_action_and_value(obs[mb], actions[mb])
            ratio = (logprob - logprobs[mb]).exp()
            adv = advantages[mb]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            clipped = ratio.clamp(1 - cfg.clip_coef, 1 + cfg.clip_coef)
            pg_loss = torch.max(-adv * ratio, -adv * clipped).mean()
            v_loss = 0.5 * (value - returns[mb]).square().mean()
            loss = pg_loss - cfg.ent_coef * entropy.mean() + cfg.vf_coef * v_loss
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), cfg.max_grad_norm)
            optimizer.step()
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=110, help="policy updates, of eight optimizer steps each")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    cfg = Config(num_envs=8, num_steps=4, hidden=32) if args.tiny else Config()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    envs = PointMasses(cfg.num_envs)
    agent = Agent(cfg.hidden).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=cfg.learning_rate, eps=1e-5, fused=True)
    next_obs = envs.observe()
    for iteration in range(args.steps):
        next_obs, kept = rollout(agent, envs, next_obs, cfg, args.fixed)  # guilty
        obs, actions, logprobs, values, rewards, dones = kept
        with torch.no_grad():
            last_value = agent.get_value(torch.from_numpy(next_obs).to(device))
            advantages = advantages_of(values, rewards, dones, last_value, cfg)
        batch = [x.flatten(0, 1) for x in (obs, actions, logprobs, advantages, advantages + values)]
        loss = update(agent, optimizer, batch, cfg)
        if iteration % 25 == 0:
            print(f"update {iteration}: loss {loss.item():.3f} reward {rewards.mean().item():.3f}")


if __name__ == "__main__":
    main()
