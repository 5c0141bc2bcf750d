"""Advantage actor-critic on a balancing task, with actor processes that roll out the latest policy.

expects: SY305
needs: cpu
"""

# mypy: ignore-errors
import argparse
import multiprocessing as mp
import time
from multiprocessing.connection import wait

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ENVS, HORIZON = 24, 16


class Balance:
    """An inverted pendulum on a spring, many at once."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.s = self.rng.uniform(-0.3, 0.3, (ENVS, 4))

    def obs(self):
        x, v, th, w = self.s.T
        return np.stack([x, v, np.cos(th), np.sin(th), w], 1).astype(np.float32)

    def step(self, push):
        x, v, th, w = self.s.T
        v = v + 0.05 * (-0.5 * x - 0.1 * v + push)
        w = w + 0.05 * (9.8 * np.sin(th) - 2.0 * push * np.cos(th) - 0.05 * w)
        self.s = np.stack([x + 0.05 * v, v, th + 0.05 * w, w], 1)
        out = (abs(x) > 3) | (abs(th) > 0.8)
        fresh = self.rng.uniform(-0.3, 0.3, self.s.shape)
        self.s[out] = fresh[out]
        return (1 - th**2 - 0.05 * x**2).astype(np.float32), out


def actor(conn, seed):
    env, rng = Balance(seed), np.random.default_rng(seed + 100)
    while True:
        weights = conn.recv()
        if weights is None:
            return
        rows = []
        for _ in range(HORIZON):
            h = obs = env.obs()
            for w, b in weights[:-1]:
                h = np.tanh(h @ w.T + b)
            mean = (h @ weights[-1][0].T + weights[-1][1])[:, 0]
            act = (mean + 0.5 * rng.standard_normal(ENVS)).astype(np.float32)
            reward, out = env.step(3 * np.tanh(act))
            rows.append((obs, act, reward, out))
        conn.send([np.stack(part) for part in zip(*rows, strict=True)] + [env.obs()])


class Actors:
    def __init__(self, count, patient):
        self.pipes, self.patient = [], patient
        for seed in range(count):
            ours, theirs = mp.Pipe()
            mp.Process(target=actor, args=(theirs, seed), daemon=True).start()
            self.pipes.append(ours)

    def rollout(self, weights):
        for pipe in self.pipes:
            pipe.send(weights)
        if self.patient:
            left = set(self.pipes)
            while left:
                left -= set(wait(list(left)))
        else:
            while not all(pipe.poll() for pipe in self.pipes):
                time.sleep(0.05)  # guilty
        parts = zip(*[pipe.recv() for pipe in self.pipes], strict=True)
        return [torch.from_numpy(np.concatenate(p, 1 if p[0].ndim > 1 and len(p[0]) == HORIZON else 0)) for p in parts]

    def close(self):
        for pipe in self.pipes:
            pipe.send(None)


def mlp(width=256):
    layers = [nn.Linear(5, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)]
    return nn.Sequential(*layers)


def numpy_weights(net):
    return [(m.weight.detach().numpy(), m.bias.detach().numpy()) for m in net if isinstance(m, nn.Linear)]


def returns(reward, out, last, gamma=0.98):
    acc, result = last, []
    for t in reversed(range(len(reward))):
        acc = reward[t] + gamma * acc * (~out[t])
        result.append(acc)
    return torch.stack(result[::-1])


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=800)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    actors = Actors(2, patient=args.fixed)
    policy, critic = mlp(), mlp()
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], 3e-4)
    for step in range(0, args.steps, 4):
        obs, act, reward, out, last = actors.rollout(numpy_weights(policy))  # guilty
        with torch.no_grad():
            goal = returns(reward, out, critic(last).squeeze(-1))
            adv = goal - critic(obs).squeeze(-1)
            adv = (adv - adv.mean()) / (adv.std() + 1e-5)
            old = -2 * (act - policy(obs).squeeze(-1)) ** 2
        for _ in range(4):
            logp = -2 * (act - policy(obs).squeeze(-1)) ** 2
            ratio = (logp - old).exp()
            gain = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            loss = F.mse_loss(critic(obs).squeeze(-1), goal) - gain
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f} reward {reward.mean():.3f}")
    actors.close()


if __name__ == "__main__":
    main()
