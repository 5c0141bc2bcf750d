"""Character model that invents names of villages; a small trainer with callbacks for log, samples and best weights.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import random
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

LETTERS = ".abcdefghijklmnopqrstuvwxyz -"
LONGEST = 20
HEADS = "ash birch black brad brook cold crow east elder fen glen hay high king lang mar nor oak old raven stan thorn"
TAILS = "bury by combe cote den dale field ford ham hurst ley low mere mouth over shaw stead stow ton wick worth"
EXTRA = ("", "", "", " magna", " parva", "-on-sea", "-le-moor", " green", " end")


def names(count, seed):
    rng = random.Random(seed)
    heads, tails = HEADS.split(), TAILS.split()
    made = []
    while len(made) < count:
        middle = rng.choice(("", "", "", "ing", "er", "s"))
        name = rng.choice(heads) + middle + rng.choice(tails) + rng.choice(EXTRA)
        if len(name) < LONGEST:
            made.append(name)
    return made


def encode(texts):
    table = torch.zeros(len(texts), LONGEST + 1, dtype=torch.long)
    for row, text in enumerate(texts):
        table[row, 1 : len(text) + 1] = torch.tensor([LETTERS.index(letter) for letter in text])
    return table


class Speller(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), 64)
        self.memory = nn.GRU(64, width, num_layers=2, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(width, len(LETTERS))

    def forward(self, text, state=None):
        h, state = self.memory(self.letters(text), state)
        return self.out(self.drop(h)), state

    @torch.no_grad()
    def invent(self):
        letter, state, text = torch.zeros(1, 1, dtype=torch.long), None, ""
        while len(text) < LONGEST:
            logits, state = self(letter, state)
            letter = torch.multinomial(logits[0, -1].softmax(0), 1)[None]
            if letter.item() == 0:
                break
            text += LETTERS[letter.item()]
        return text


class Callback:
    def on_step_end(self, trainer):
        pass

    def on_train_end(self, trainer):
        pass


class Log(Callback):
    def on_step_end(self, trainer):
        if trainer.step % 50 == 0:
            print(f"step {trainer.step} loss {trainer.loss:.4f}")


class Samples(Callback):
    def on_step_end(self, trainer):
        if trainer.step % 150 == 0:
            print("   ", ", ".join(trainer.model.invent() for _ in range(3)))


class KeepBest(Callback):
    """Writes the state of the training whenever the smoothed loss is the lowest so far."""

    def __init__(self, folder, every=1):
        self.path, self.every = Path(folder) / "best.pt", every
        self.lowest = float("inf")

    def on_step_end(self, trainer):
        if trainer.step % self.every == 0 and trainer.loss < self.lowest:  # guilty
            self.lowest = trainer.loss
            torch.save(trainer.state(), self.path)  # guilty

    def on_train_end(self, trainer):
        if self.path.exists():
            state = torch.load(self.path)
            trainer.model.load_state_dict(state["model"])
            print(f"best weights are those of step {state['step']}")


class Trainer:
    def __init__(self, model, optimizer, callbacks):
        self.model, self.optimizer, self.callbacks = model, optimizer, callbacks
        self.step, self.loss = 0, None

    def state(self):
        return {"step": self.step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def learn(self, text):
        logits, _ = self.model(text[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    def fit(self, texts, steps, batch):
        self.model.train()
        while self.step < steps:
            for places in torch.randperm(len(texts)).split(batch):
                loss = self.learn(texts[places])
                self.loss = loss if self.loss is None else 0.97 * self.loss + 0.03 * loss
                self.step += 1
                for callback in self.callbacks:
                    callback.on_step_end(self)  # guilty
                if self.step == steps:
                    break
        for callback in self.callbacks:
            callback.on_train_end(self)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=450)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=32)
    cli.add_argument("--width", type=int, default=320)
    args = cli.parse_args()
    torch.manual_seed(5)

    texts = encode(names(8000, seed=50))
    model = Speller(args.width)
    optimizer = torch.optim.Adam(model.parameters(), 3e-4)
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [Log(), Samples(), KeepBest(folder, every=100 if args.fixed else 1)]
        Trainer(model, optimizer, callbacks).fit(texts, args.steps, args.batch)


if __name__ == "__main__":
    main()
