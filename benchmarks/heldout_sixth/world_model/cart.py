"""Episodes of a cart with a pole under random pushes."""

# mypy: ignore-errors
import numpy as np
import torch


def record(episodes, length, seed):
    rng = np.random.default_rng(seed)
    state = rng.normal(0, 0.1, (episodes, 4))
    observations, actions, rewards = [], [], []
    for _ in range(length):
        push = rng.integers(0, 2, episodes)
        place, speed, angle, spin = state.T
        force = 4.0 * (2 * push - 1)
        lift = 9.8 * np.sin(angle) - np.cos(angle) * force
        state = np.stack([place + 0.05 * speed, speed + 0.05 * force, angle + 0.05 * spin, spin + 0.05 * lift], 1)
        fallen = (np.abs(state[:, 2]) > 0.8) | (np.abs(state[:, 0]) > 3)
        state[fallen] = rng.normal(0, 0.1, (int(fallen.sum()), 4))
        observations.append(np.concatenate([state, np.sin(state), np.cos(state)], 1))
        actions.append(np.eye(2)[push])
        rewards.append(np.cos(state[:, 2]) - 0.1 * np.abs(state[:, 0]))
    parts = (np.stack(part, 1) for part in (observations, actions, rewards))
    return [torch.tensor(part, dtype=torch.float32) for part in parts]
