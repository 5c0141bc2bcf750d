"""Many planar arms at once, each with twelve joints, each reaching for its own target."""

# mypy: ignore-errors
import numpy as np

JOINTS = 12


class Arms:
    def __init__(self, count, seed, horizon=60):
        self.rng = np.random.default_rng(seed)
        self.count, self.horizon = count, horizon
        self.angles = np.zeros((count, JOINTS), dtype=np.float32)
        self.speeds = np.zeros((count, JOINTS), dtype=np.float32)
        self.targets = np.zeros((count, 2), dtype=np.float32)
        self.age = self.rng.integers(horizon, size=count)
        self.restart(np.ones(count, dtype=bool))

    def restart(self, which):
        some = int(which.sum())
        self.angles[which] = self.rng.normal(0, 0.3, (some, JOINTS))
        self.speeds[which] = 0
        self.targets[which] = self.rng.uniform(-0.7, 0.7, (some, 2))

    def tips(self):
        bends = np.cumsum(self.angles, axis=1)
        return np.stack([np.cos(bends).mean(1), np.sin(bends).mean(1)], axis=1)

    def observe(self):
        parts = [np.sin(self.angles), np.cos(self.angles), self.speeds, self.targets, self.targets - self.tips()]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def step(self, torque):
        self.speeds = 0.9 * self.speeds + 0.1 * np.clip(torque, -2, 2)
        self.angles = self.angles + 0.2 * self.speeds
        gap = np.linalg.norm(self.targets - self.tips(), axis=1)
        reward = -gap - 0.002 * (torque**2).mean(1)
        self.age += 1
        done = self.age >= self.horizon
        self.age[done] = 0
        self.restart(done)
        return self.observe(), reward.astype(np.float32), done.astype(np.float32)


OBSERVED = 3 * JOINTS + 4
