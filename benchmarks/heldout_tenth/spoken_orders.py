"""Transcribes spoken orders of spare parts: listens with a recurrent encoder, spells with an attending decoder.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

BANDS, WORDS, PAD, START = 32, 14, 0, 1


def vocabulary(rng):
    """A spectral pattern for every word: moving formants over ten frames."""
    frames, bands = np.arange(10)[:, None], np.arange(BANDS)[None]
    looks = []
    for _ in range(WORDS):
        look = np.zeros((10, BANDS))
        for _ in range(3):
            centre = rng.uniform(3, BANDS - 3) + rng.uniform(-0.8, 0.8) * frames
            look += np.exp(-((bands - centre) ** 2) / 4)
        looks.append(look)
    return looks


class Orders(Dataset):
    """Utterances of four to seven words. Every reading is stretched, coloured and masked anew."""

    def __init__(self, count, seed, augment=True):
        rng = np.random.default_rng(70)
        looks = vocabulary(rng)
        rng = np.random.default_rng(seed)
        self.augment = augment
        self.sound, self.text = [], []
        for _ in range(count):
            words = rng.integers(WORDS, size=rng.integers(4, 8))
            pieces = [np.zeros((2, BANDS))] + [looks[word][: rng.integers(8, 11)] for word in words]
            spoken = np.concatenate(pieces) * rng.uniform(0.7, 1.3)
            self.sound.append((spoken + rng.normal(0, 0.15, spoken.shape)).astype(np.float32))
            self.text.append(torch.from_numpy(words + 2))

    def __len__(self):
        return len(self.sound)

    def __getitem__(self, index):
        sound = self.sound[index]
        if self.augment:
            rng = np.random.default_rng(torch.randint(2**31, ()).item())
            sound = sound[np.linspace(0, len(sound) - 1, int(len(sound) * rng.uniform(0.9, 1.1))).round().astype(int)]
            sound = sound + np.linspace(*rng.normal(0, 0.1, 2), BANDS, dtype=np.float32)
            first = rng.integers(BANDS - 4)
            sound[:, first : first + rng.integers(5)] = 0
            begin = rng.integers(len(sound) - 4)
            sound[begin : begin + rng.integers(4)] = 0
        return torch.from_numpy(sound), self.text[index]


def collate(samples):
    sounds, texts = zip(*samples)
    lengths = torch.tensor([len(sound) for sound in sounds])
    pad = nn.utils.rnn.pad_sequence
    return pad(sounds, batch_first=True), lengths, pad(texts, batch_first=True, padding_value=PAD)


class Listener(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(BANDS, width, 5, padding=2), nn.ReLU(True))
        self.memory = nn.GRU(width, width // 2, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, sounds):
        return self.memory(self.front(sounds.transpose(1, 2)).transpose(1, 2))[0]


class Speller(nn.Module):
    """One word after another: each cell needs the word chosen and the context seen just before."""

    def __init__(self, width):
        super().__init__()
        self.words = nn.Embedding(WORDS + 2, width)
        self.cell = nn.GRUCell(2 * width, width)
        self.ask = nn.Linear(width, width)
        self.out = nn.Linear(2 * width, WORDS + 2)

    def forward(self, heard, silent, text, trust):
        state = heard.mean(1)
        context = torch.zeros_like(state)
        word = torch.full((len(heard),), START)
        answers = []
        for place in range(text.shape[1]):
            state = self.cell(torch.cat([self.words(word), context], 1), state)
            scores = torch.bmm(heard, self.ask(state).unsqueeze(2)).squeeze(2).masked_fill(silent, -1e9)
            context = torch.bmm(scores.softmax(1).unsqueeze(1), heard).squeeze(1)
            answers.append(self.out(torch.cat([state, context], 1)))
            guided = torch.rand(len(heard)) < trust
            word = torch.where(guided, text[:, place], answers[-1].argmax(1))
        return torch.stack(answers, 1)


class Transcriber(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.listener, self.speller = Listener(width), Speller(width)

    def forward(self, sounds, lengths, text, trust):
        silent = torch.arange(sounds.shape[1]) >= lengths[:, None]
        return self.speller(self.listener(sounds), silent, text, trust)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=48)
    args = cli.parse_args()
    torch.manual_seed(19)

    loader = DataLoader(
        Orders(4800, seed=71),
        args.batch,
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        num_workers=1,
        persistent_workers=True,
    )
    model = Transcriber()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    step, loss_mean, right_mean = 0, 0.0, 0.0
    while step < args.steps:
        for sounds, lengths, text in loader:
            trust = max(0.5, 1 - step / 400)
            answer = model(sounds, lengths, text, trust)
            loss = F.cross_entropy(answer.flatten(0, 1), text.flatten(), ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            pace = max(0.05, 1 / step)
            loss_mean += pace * (loss.item() - loss_mean)
            right = (answer.argmax(2) == text)[text != PAD].float().mean().item()
            right_mean += pace * (right - right_mean)
            if step % 25 == 0 or step == args.steps:
                print(f"step {step} loss {loss_mean:.4f} words right {right_mean:.3f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
