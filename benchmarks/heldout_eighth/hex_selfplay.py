"""Learns Hex on a small board by self-play: games go to a folder that the learner samples from.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIDE = 7
CELLS = SIDE * SIDE
AROUND = ((0, 1), (1, 0), (1, -1), (0, -1), (-1, 0), (-1, 1))


def connected(stones):
    """Whether the stones join the first row with the last."""
    open_cells = [(0, c) for c in range(SIDE) if stones[0, c]]
    seen = set(open_cells)
    while open_cells:
        r, c = open_cells.pop()
        if r == SIDE - 1:
            return True
        for dr, dc in AROUND:
            cell = (r + dr, c + dc)
            if 0 <= cell[0] < SIDE and 0 <= cell[1] < SIDE and cell not in seen and stones[cell]:
                seen.add(cell)
                open_cells.append(cell)
    return False


class Archive:
    """Games as files, the newest `window` of them for training."""

    def __init__(self, folder, window, indexed):
        self.folder, self.window, self.indexed = Path(folder), window, indexed
        self.count, self.index = 0, []

    def write(self, boards, moves, results):
        path = self.folder / f"game_{self.count:06d}.npz"
        np.savez(path, boards=boards, moves=moves, results=results)
        self.index.append(path)
        self.count += 1

    def games(self):
        if self.indexed:
            return self.index[-self.window :]
        found = self.folder.glob("game_*.npz")  # guilty
        return sorted(found, key=lambda path: (path.stat().st_mtime, path.name))[-self.window :]  # guilty

    def batch(self, rng, count):
        games = self.games()  # guilty
        parts = [np.load(games[i]) for i in rng.integers(len(games), size=count)]
        boards, moves, results = (np.concatenate([p[name] for p in parts]) for name in ("boards", "moves", "results"))
        return torch.from_numpy(boards), torch.from_numpy(moves), torch.from_numpy(results)


class Player(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.start = nn.Conv2d(2, width, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.policy = nn.Conv2d(width, 1, 1)
        self.value = nn.Linear(width, 1)

    def forward(self, boards):
        x = F.relu(self.start(boards))
        for block in self.blocks:
            x = x + F.relu(block(x))
        return self.policy(x).flatten(1), torch.tanh(self.value(x.mean((2, 3)))).squeeze(1)


def first_games(archive, rng, count):
    """Games with random moves, as the start of the archive."""
    for _ in range(count):
        order = rng.permutation(CELLS)[: CELLS - 8]
        boards = np.zeros((8, 2, SIDE, SIDE), np.float32)
        boards.reshape(8, 2, CELLS)[:, 0, order[::2]] = 1
        boards.reshape(8, 2, CELLS)[:, 1, order[1::2]] = 1
        won = 1.0 if connected(boards[0, 0]) else -1.0
        archive.write(boards, rng.integers(CELLS, size=8), np.full(8, won, np.float32))


@torch.no_grad()
def self_play(model, games=4):
    boards = torch.zeros(games, 2, SIDE, SIDE)
    kept, chosen = [], []
    for _ in range(CELLS // 2):
        logits, _ = model(boards)
        taken = boards.sum(1).flatten(1) > 0
        moves = torch.distributions.Categorical(logits=logits.masked_fill(taken, -1e9)).sample()
        kept.append(boards)
        chosen.append(moves)
        stones = boards[:, 0].flatten(1).scatter(1, moves[:, None], 1.0).view(games, SIDE, SIDE)
        boards = torch.stack([boards[:, 1].transpose(1, 2), stones.transpose(1, 2)], 1)
    return torch.stack(kept, 1), torch.stack(chosen, 1), boards


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=240)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--games", type=int, default=12, help="games in a batch")
    args = cli.parse_args()
    torch.manual_seed(53)
    rng = np.random.default_rng(53)

    folder = tempfile.mkdtemp(prefix="hex_")
    try:
        archive = Archive(folder, window=1_500, indexed=args.fixed)
        first_games(archive, rng, 2_000)
        model = Player()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=1e-3)
        for step in range(1, args.steps + 1):
            if step % 8 == 0:
                played, moves, final = self_play(model)
                for boards, chosen, last in zip(played, moves, final):
                    won = -1.0 if connected(last[1].T.numpy()) else 1.0
                    turns = np.where(np.arange(len(boards)) % 2 == 0, won, -won).astype(np.float32)
                    archive.write(boards.numpy(), chosen.numpy(), turns)
            boards, moves, results = archive.batch(rng, args.games)
            logits, value = model(boards)
            loss = F.cross_entropy(logits, moves) + F.mse_loss(value, results)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 60 == 0:
                print(f"step {step} loss {loss.item():.3f} games {archive.count}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
