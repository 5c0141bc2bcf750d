"""An acoustic model for speech synthesis that searches the monotonic alignment of phonemes and frames in every step.

expects: HO402, HO411
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PHONEMES, MEL = 44, 20


def make_batches(n, batch_size, seed):
    """Utterances of similar length, padded together."""
    rng = np.random.default_rng(seed)
    timbre = rng.normal(size=(PHONEMES, MEL)).astype(np.float32)
    utterances = []
    for _ in range(n):
        phones = rng.integers(1, PHONEMES, rng.integers(20, 28))
        durations = rng.integers(2, 6, len(phones))
        mel = np.repeat(timbre[phones], durations, 0)
        mel = mel + 0.4 * rng.normal(size=mel.shape).astype(np.float32)
        utterances.append((phones, mel.astype(np.float32)))
    utterances.sort(key=lambda u: len(u[1]))
    batches = []
    for start in range(0, n, batch_size):
        group = utterances[start : start + batch_size]
        text_len, mel_len = [len(p) for p, _ in group], [len(m) for _, m in group]
        text = torch.zeros(len(group), max(text_len), dtype=torch.long)
        mel = torch.zeros(len(group), max(mel_len), MEL)
        for row, (phones, frames) in enumerate(group):
            text[row, : len(phones)] = torch.from_numpy(phones)
            mel[row, : len(frames)] = torch.from_numpy(frames)
        batches.append((text, mel, np.array(text_len), np.array(mel_len)))
    return batches


def search_path(score, n_text, n_mel):
    """The best monotonic path through one utterance's scores."""
    best = np.full((n_text, n_mel), -1e9, np.float32)
    best[0, 0] = score[0, 0]
    for j in range(1, n_mel):
        for i in range(max(0, n_text + j - n_mel), min(n_text, j + 1)):
            move = best[i - 1, j - 1] if i > 0 else -1e9  # guilty
            best[i, j] = score[i, j] + max(best[i, j - 1], move)  # guilty
    path, i = np.zeros(n_mel, np.int64), n_text - 1
    for j in range(n_mel - 1, -1, -1):
        path[j] = i
        if i > 0 and j > 0 and (i == j or best[i - 1, j - 1] > best[i, j - 1]):
            i -= 1
    return path


def search_paths(score, text_len, mel_len):
    """The same for a whole batch, one frame after the other."""
    rows, n_text, n_mel = score.shape
    best = np.full((rows, n_text), -1e9, np.float32)
    best[:, 0] = score[:, 0, 0]
    moved = np.zeros((n_mel, rows, n_text), bool)
    for j in range(1, n_mel):
        move = np.full_like(best, -1e9)
        move[:, 1:] = best[:, :-1]
        moved[j] = move > best
        best = np.maximum(best, move) + score[:, :, j]
    paths, i = np.zeros((rows, n_mel), np.int64), text_len - 1
    every = np.arange(rows)
    for j in range(n_mel - 1, -1, -1):
        inside = j < mel_len
        paths[inside, j] = i[inside]
        i = i - (inside & (i > 0) & ((i == j) | moved[j, every, i]))
    return paths


def align(score, text_len, mel_len, fixed):
    score = score.detach().numpy()
    if fixed:
        return torch.from_numpy(search_paths(score, text_len, mel_len))
    paths = np.zeros((len(score), score.shape[2]), np.int64)
    for row, (n_text, n_mel) in enumerate(zip(text_len.tolist(), mel_len.tolist(), strict=False)):
        paths[row, :n_mel] = search_path(score[row], n_text, n_mel)  # guilty
    return torch.from_numpy(paths)


class ConvBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(width, width, 5, padding=2), nn.LayerNorm(width)

    def forward(self, x):
        return x + F.gelu(self.norm(self.conv(x.transpose(1, 2)).transpose(1, 2)))


class Acoustic(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(PHONEMES, width, padding_idx=0)
        self.encoder = nn.Sequential(*[ConvBlock(width) for _ in range(3)])
        self.mean, self.duration = nn.Linear(width, MEL), nn.Linear(width, 1)
        self.decoder = nn.Sequential(*[ConvBlock(width) for _ in range(2)])
        self.out = nn.Linear(width, MEL)

    def encode(self, text, mel):
        hidden = self.encoder(self.embed(text))
        mean = self.mean(hidden)
        score = mean @ mel.transpose(1, 2) - 0.5 * mean.square().sum(2, keepdim=True)
        return hidden, score, self.duration(hidden.detach()).squeeze(2)

    def decode(self, hidden, path):
        frames = hidden.gather(1, path[:, :, None].expand(-1, -1, hidden.shape[2]))
        return self.out(self.decoder(frames))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=160)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    batches = make_batches(160, 8, 1)
    model = Acoustic()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    order = np.random.default_rng(2)
    for step in range(1, args.steps + 1):
        text, mel, text_len, mel_len = batches[order.integers(len(batches))]
        hidden, score, log_duration = model.encode(text, mel)
        path = align(score, text_len, mel_len, args.fixed)
        real = torch.arange(mel.shape[1])[None] < torch.from_numpy(mel_len)[:, None]
        frames = torch.zeros_like(log_duration).scatter_add_(1, path, real.float())
        matched = score.gather(1, path[:, None]).squeeze(1)
        prior = -(matched * real).sum() / (real.sum() * MEL)
        spoken = text > 0
        timing = F.mse_loss(log_duration[spoken], frames[spoken].clamp_min(1).log())
        spectrum = ((model.decode(hidden, path) - mel).abs().mean(2) * real).sum() / real.sum()
        loss = prior + timing + spectrum
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} spectrum {spectrum.item():.4f}")


if __name__ == "__main__":
    main()
