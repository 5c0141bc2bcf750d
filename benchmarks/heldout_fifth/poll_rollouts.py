"""An actor-critic on a swarm of carts, where an actor thread plays and the learner waits for its rollouts.

expects: SY305
needs: cpu
"""

# mypy: ignore-errors
import argparse
import threading
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Carts:
    """Carts on a line that have to reach their flags."""

    def __init__(self, n, seed):
        self.rng, self.n = np.random.default_rng(seed), n
        self.x, self.v = self.rng.uniform(-1, 1, n), np.zeros(n)
        self.flag = self.rng.uniform(-1, 1, n)

    def obs(self):
        return np.stack([self.x, self.v, self.flag, self.flag - self.x], 1).astype(np.float32)

    def step(self, action):
        self.v = 0.9 * self.v + 0.05 * (action - 1)
        self.x = np.clip(self.x + self.v, -2, 2)
        reward = -np.abs(self.x - self.flag)
        done = self.rng.random(self.n) < 0.02
        self.flag = np.where(done, self.rng.uniform(-1, 1, self.n), self.flag)
        return self.obs(), reward.astype(np.float32), done.astype(np.float32)


class Policy(nn.Module):
    def __init__(self, width=320):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.pi, self.value = nn.Linear(width, 3), nn.Linear(width, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.value(h).squeeze(-1)


class Actor(threading.Thread):
    """Plays one rollout for each policy that it is handed."""

    def __init__(self, policy, carts, length):
        super().__init__(daemon=True)
        self.policy, self.carts, self.length = policy, carts, length
        self.rng = np.random.default_rng(4)
        self.wanted, self.ready = threading.Semaphore(0), threading.Condition()
        self.rollouts, self.stopped = deque(), False

    def play(self):
        rows, obs = [], self.carts.obs()
        for _ in range(self.length):
            with torch.no_grad():
                logits = self.policy(torch.from_numpy(obs))[0].numpy()
            action = (logits + self.rng.gumbel(size=logits.shape)).argmax(1)
            nxt, reward, done = self.carts.step(action)
            rows.append((obs, action, reward, done))
            obs = nxt
        return [torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True)], torch.from_numpy(obs)

    def run(self):
        while True:
            self.wanted.acquire()
            if self.stopped:
                return
            rollout = self.play()
            with self.ready:
                self.rollouts.append(rollout)
                self.ready.notify()

    def stop(self):
        self.stopped = True
        self.wanted.release()
        self.join()


def take(actor, fixed):
    actor.wanted.release()
    if fixed:
        with actor.ready:
            actor.ready.wait_for(lambda: actor.rollouts)
    while not actor.rollouts:  # guilty
        time.sleep(0.05)  # guilty
    return actor.rollouts.popleft()


def returns(reward, done, last, gamma=0.97):
    out = torch.empty_like(reward)
    for t in reversed(range(len(reward))):
        last = reward[t] + gamma * (1 - done[t]) * last
        out[t] = last
    return out


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=240)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    policy = Policy()
    actor = Actor(policy, Carts(64, 1), 24)
    actor.start()
    optimizer = torch.optim.Adam(policy.parameters(), 7e-4)
    for update in range(1, args.steps + 1):
        (obs, action, reward, done), last = take(actor, args.fixed)  # guilty
        logits, value = policy(obs)
        with torch.no_grad():
            goal = returns(reward, done, policy(last)[1])
        logp = F.log_softmax(logits, -1)
        chosen = logp.gather(-1, action[..., None]).squeeze(-1)
        advantage = goal - value.detach()
        entropy = -(logp.exp() * logp).sum(-1).mean()
        loss = -(chosen * advantage).mean() + 0.5 * F.mse_loss(value, goal) - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        if update % 40 == 0:
            print(f"update {update} loss {loss.item():.4f} reward {reward.mean().item():.4f}")
    actor.stop()


if __name__ == "__main__":
    main()
