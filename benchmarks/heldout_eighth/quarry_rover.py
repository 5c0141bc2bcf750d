"""Drives ore rovers over a simulated quarry with twin delayed critics and a replay of past moves.

expects: CA603
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SEEN, MOVES = 22, 3


class Quarry:
    """A herd of rovers on a bumpy floor; each sees its goal, its speed and the slopes around it."""

    def __init__(self, rovers, rng):
        self.rovers, self.rng = rovers, rng
        self.waves = rng.normal(0, 1, (8, 3))
        self.around = np.stack([np.cos(np.arange(16) * np.pi / 8), np.sin(np.arange(16) * np.pi / 8)], -1)
        self.place = rng.uniform(-3, 3, (rovers, 2))
        self.speed = np.zeros((rovers, 2))
        self.goal = rng.uniform(-3, 3, (rovers, 2))
        self.load = np.ones(rovers)

    def height(self, place):
        return np.sin(place @ self.waves[:, :2].T + self.waves[:, 2]).sum(-1) / 8

    def look(self):
        slopes = self.height(self.place[:, None] + 0.2 * self.around) - self.height(self.place)[:, None]
        near = self.goal - self.place
        size = np.linalg.norm(near, axis=1, keepdims=True)
        parts = [near / (size + 1e-6), np.tanh(size / 3), self.speed, self.load[:, None], slopes]
        return np.concatenate(parts, 1).astype(np.float32)

    def step(self, moves):
        thrust = moves[:, :2] * (1 + 0.5 * moves[:, 2:])
        dx = self.height(self.place + [0.1, 0]) - self.height(self.place)
        dy = self.height(self.place + [0, 0.1]) - self.height(self.place)
        self.speed = 0.9 * self.speed + 0.1 * thrust - 0.5 * np.stack([dx, dy], -1)
        self.place = np.clip(self.place + 0.2 * self.speed, -3, 3)
        far = np.linalg.norm(self.goal - self.place, axis=1)
        done = far < 0.25
        reward = -0.1 * far - 0.02 * np.square(moves).sum(1) + 2.0 * done
        self.goal[done] = self.rng.uniform(-3, 3, (int(done.sum()), 2))
        return reward.astype(np.float32), done.astype(np.float32)


class Replay:
    def __init__(self, size):
        self.size, self.at, self.filled = size, 0, 0
        self.seen, self.then = np.zeros((size, SEEN), np.float32), np.zeros((size, SEEN), np.float32)
        self.moves, self.rest = np.zeros((size, MOVES), np.float32), np.zeros((size, 2), np.float32)

    def add(self, seen, moves, reward, done, then):
        rows = (self.at + np.arange(len(seen))) % self.size
        self.seen[rows], self.moves[rows], self.then[rows] = seen, moves, then
        self.rest[rows, 0], self.rest[rows, 1] = reward, done
        self.at, self.filled = int((rows[-1] + 1) % self.size), min(self.size, self.filled + len(seen))

    def sample(self, rng, batch):
        rows = rng.integers(self.filled, size=batch)
        return [torch.from_numpy(part[rows]) for part in (self.seen, self.moves, self.rest, self.then)]


def mlp(inside, outside, width=160):
    return nn.Sequential(
        nn.Linear(inside, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outside)
    )


class Agent:
    def __init__(self):
        self.actor, self.actor_target = mlp(SEEN, MOVES), mlp(SEEN, MOVES)
        self.critics = nn.ModuleList(mlp(SEEN + MOVES, 1) for _ in range(2))
        self.critics_target = nn.ModuleList(mlp(SEEN + MOVES, 1) for _ in range(2))
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.critics_target.load_state_dict(self.critics.state_dict())
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), 3e-4)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), 3e-4)

    @torch.no_grad()
    def act(self, seen, noise):
        moves = torch.tanh(self.actor(torch.from_numpy(seen)))
        return (moves + noise * torch.randn_like(moves)).clamp(-1, 1).numpy()

    def update(self, batch, step):
        seen, moves, rest, then = batch
        with torch.no_grad():
            ahead = torch.tanh(self.actor_target(then))
            ahead = (ahead + (0.2 * torch.randn_like(ahead)).clamp(-0.5, 0.5)).clamp(-1, 1)
            worth = torch.minimum(*[critic(torch.cat([then, ahead], 1)) for critic in self.critics_target])
            goal = rest[:, :1] + 0.98 * (1 - rest[:, 1:]) * worth
        loss = sum(F.mse_loss(critic(torch.cat([seen, moves], 1)), goal) for critic in self.critics)
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        if step % 2 == 0:
            own = torch.tanh(self.actor(seen))
            gain = self.critics[0](torch.cat([seen, own], 1)).mean()
            self.actor_optimizer.zero_grad()
            (-gain).backward()
            self.actor_optimizer.step()
            for net, target in ((self.actor, self.actor_target), (self.critics, self.critics_target)):
                for ours, theirs in zip(net.parameters(), target.parameters()):
                    theirs.data.lerp_(ours.data, 0.01)
        return loss

    def state(self):
        nets = {"actor": self.actor.state_dict(), "critics": self.critics.state_dict()}
        return nets | {"optimizers": [self.actor_optimizer.state_dict(), self.critic_optimizer.state_dict()]}


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=700)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--save-every", type=int, default=20)
    args = cli.parse_args()
    if args.fixed:
        args.save_every = 500
    torch.manual_seed(2)
    rng = np.random.default_rng(2)
    quarry, replay, agent = Quarry(64, rng), Replay(150_000), Agent()
    seen = quarry.look()
    for _ in range(1200):
        moves = rng.uniform(-1, 1, (64, MOVES)).astype(np.float32)
        reward, done = quarry.step(moves)
        then = quarry.look()
        replay.add(seen, moves, reward, done, then)
        seen = then
    with tempfile.TemporaryDirectory() as folder:
        latest = Path(folder) / "latest.pt"
        for step in range(1, args.steps + 1):
            moves = agent.act(seen, 0.1)
            reward, done = quarry.step(moves)
            then = quarry.look()
            replay.add(seen, moves, reward, done, then)
            seen = then
            loss = agent.update(replay.sample(rng, 256), step)
            if step % args.save_every == 0:  # guilty
                torch.save({"step": step, "agent": agent.state(), "replay": vars(replay)}, latest)  # guilty
            if step % 100 == 0:
                print(f"step {step} critics {loss.item():.4f} reward {reward.mean():.3f}")


if __name__ == "__main__":
    main()
