"""Double DQN: a thread plays in an emulator and fills the replay memory that the learner draws from.

expects: other
needs: gpu
"""

# mypy: ignore-errors

import argparse
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Emulator:
    """Shows a frame every couple of milliseconds."""

    FRAME = 0.002

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.noise = self.rng.integers(0, 255, (64, 84, 84), dtype=np.uint8)
        self.tick = 0

    def advance(self):
        time.sleep(self.FRAME)  # guilty
        self.tick += 1
        frame = self.noise[self.tick % 64]
        return frame, int(self.rng.integers(6)), float(self.rng.normal()), self.tick % 500 == 0


class Replay:
    def __init__(self, capacity, stack, seed):
        rng = np.random.default_rng(seed)
        self.frames = np.resize(rng.integers(0, 255, (128, 84, 84), dtype=np.uint8), (capacity, 84, 84))
        self.actions = rng.integers(0, 6, capacity)
        self.rewards = rng.normal(size=capacity).astype(np.float32)
        self.ends = np.zeros(capacity, dtype=np.float32)
        self.capacity, self.stack, self.cursor, self.rng = capacity, stack, 0, rng
        self.lock = threading.Lock()

    def put(self, frame, action, reward, end):
        i = self.cursor
        self.frames[i], self.actions[i], self.rewards[i], self.ends[i] = frame, action, reward, end
        self.cursor = (i + 1) % self.capacity

    def sample(self, batch):
        with self.lock:  # guilty
            chosen = self.rng.integers(self.stack, self.capacity - 1, batch)
            window = self.frames[chosen[:, None] + np.arange(-self.stack + 1, 2)]
            return window, self.actions[chosen], self.rewards[chosen], self.ends[chosen]


class Player(threading.Thread):
    def __init__(self, emulator, replay, burst, fixed):
        super().__init__(daemon=True)
        self.emulator, self.replay, self.burst, self.fixed = emulator, replay, burst, fixed
        self.over = threading.Event()

    def run(self):
        while not self.over.is_set():
            if self.fixed:
                played = [self.emulator.advance() for _ in range(self.burst)]
                with self.replay.lock:
                    for transition in played:
                        self.replay.put(*transition)
            else:
                with self.replay.lock:  # guilty
                    for _ in range(self.burst):  # guilty
                        self.replay.put(*self.emulator.advance())  # guilty
            time.sleep(0.001)


class QNetwork(nn.Module):
    def __init__(self, stack, width):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(stack, width, 8, 4),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 2 * width, 4, 2),
            nn.ReLU(inplace=True),
            nn.Conv2d(2 * width, 2 * width, 3, 1),
            nn.ReLU(inplace=True),
            nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Linear(2 * width * 49, 512), nn.ReLU(inplace=True), nn.Linear(512, 6))

    def forward(self, frames):
        return self.head(self.features(frames.to(torch.bfloat16) / 255)).float()


def to_device(array, device):
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device == "cuda" else tensor


def learn(online, target, sample, device):
    window, actions, rewards, ends = (to_device(array, device) for array in sample)
    with torch.autocast(device, dtype=torch.bfloat16):
        q = online(window[:, :-1]).gather(1, actions[:, None]).squeeze(1)
        with torch.no_grad():
            best = online(window[:, 1:]).argmax(1, keepdim=True)
            following = target(window[:, 1:]).gather(1, best).squeeze(1)
    return F.smooth_l1_loss(q, rewards + 0.99 * (1 - ends) * following)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=420)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(14)
    torch.backends.cudnn.benchmark = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, width = (4, 8) if args.tiny else (256, 128)
    replay = Replay(6000, 4, 14)
    player = Player(Emulator(15), replay, 10, args.fixed)
    online, target = QNetwork(4, width).to(device), QNetwork(4, width).to(device)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4, fused=True)
    player.start()
    for step in range(args.steps):
        loss = learn(online, target, replay.sample(batch), device)  # guilty
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            target.load_state_dict(online.state_dict())
            print(f"step {step} loss {loss.item():.4f}")
    player.over.set()
    player.join()


if __name__ == "__main__":
    main()
