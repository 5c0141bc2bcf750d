"""Advantage actor-critic on a drifting-target game, with an actor thread that hands its rollouts to the learner.

expects: SY305
needs: cpu
"""

# mypy: ignore-errors
import argparse
import queue
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ENVS, HORIZON, ACTIONS = 32, 16, 5
MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)


class Chase:
    """Many games in one array: a cursor is steered after a target that drifts away."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.cursor = self.rng.normal(size=(ENVS, 2)).astype(np.float32)
        self.target = self.rng.normal(size=(ENVS, 2)).astype(np.float32)
        self.drift = 0.03 * self.rng.normal(size=(ENVS, 2)).astype(np.float32)

    def observe(self):
        gap = self.target - self.cursor
        return np.concatenate([self.cursor, self.target, gap, self.drift], 1)

    def step(self, actions):
        self.cursor += 0.1 * MOVES[actions]
        self.target += self.drift
        distance = np.linalg.norm(self.target - self.cursor, axis=1)
        done = (distance > 4.0) | (self.rng.random(ENVS) < 0.02)
        self.cursor[done] = self.rng.normal(size=(int(done.sum()), 2))
        self.target[done] = self.rng.normal(size=(int(done.sum()), 2))
        return -distance.astype(np.float32), done.astype(np.float32)


class Policy(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.action = nn.Linear(width, ACTIONS)
        self.value = nn.Linear(width, 1)

    def forward(self, x):
        x = self.trunk(x)
        return self.action(x), self.value(x).squeeze(-1)


class Actor(threading.Thread):
    """Plays HORIZON moves with the current policy whenever the learner asks for them."""

    def __init__(self, policy, seed):
        super().__init__(daemon=True)
        self.policy, self.games = policy, Chase(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.requests, self.rollouts = queue.Queue(), queue.Queue()

    @torch.no_grad()
    def run(self):
        torch.set_grad_enabled(False)
        while self.requests.get():
            rows = []
            for _ in range(HORIZON):
                observed = torch.from_numpy(self.games.observe())
                logits, _ = self.policy(observed)
                action = torch.multinomial(logits.softmax(1), 1, generator=self.generator).squeeze(1)
                reward, done = self.games.step(action.numpy())
                rows.append((observed, action, torch.from_numpy(reward), torch.from_numpy(done)))
            last = torch.from_numpy(self.games.observe())
            self.rollouts.put((*(torch.stack(part) for part in zip(*rows, strict=False)), last))

    def collect(self, fixed):
        self.requests.put(True)
        if fixed:
            return self.rollouts.get()
        while self.rollouts.empty():
            time.sleep(0.05)  # guilty
        return self.rollouts.get_nowait()


def returns_of(rewards, dones, bootstrap, gamma=0.97):
    out, running = [], bootstrap
    for reward, done in zip(rewards.flip(0), dones.flip(0), strict=False):
        running = reward + gamma * (1 - done) * running
        out.append(running)
    return torch.stack(out[::-1])


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=180)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(3)
    policy = Policy()
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=7e-4, alpha=0.99)
    actor = Actor(policy, seed=11)
    actor.start()
    for update in range(1, args.steps + 1):
        observed, actions, rewards, dones, last = actor.collect(args.fixed)
        logits, values = policy(observed)
        with torch.no_grad():
            _, bootstrap = policy(last)
            targets = returns_of(rewards, dones, bootstrap)
        log_prob = F.log_softmax(logits, -1)
        chosen = log_prob.gather(2, actions.unsqueeze(2)).squeeze(2)
        advantage = targets - values.detach()
        entropy = -(log_prob.exp() * log_prob).sum(-1).mean()
        loss = -(advantage * chosen).mean() + 0.5 * F.mse_loss(values, targets) - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        if update % 50 == 0:
            print(f"update {update} reward {rewards.mean().item():.3f} entropy {entropy.item():.3f}")
    actor.requests.put(False)
    actor.join()


if __name__ == "__main__":
    main()
