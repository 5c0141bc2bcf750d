"""Classifies what collared zebras do from accelerometer tracks, with a small trainer and its callbacks.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn

DEEDS, CHANNELS, SAMPLES = 5, 6, 256


def tracks(count):
    """Gaits of several paces on each axis; a deed has its pace and its share of every axis."""
    deeds = torch.randint(DEEDS, (count,))
    time = torch.linspace(0, 10, SAMPLES)
    pace = 1.0 + 0.9 * deeds[:, None, None] + 0.3 * torch.randn(count, 1, 1)
    share = torch.rand(DEEDS, CHANNELS)[deeds][..., None]
    waves = share * torch.sin(pace * time + 6.28 * torch.rand(count, CHANNELS, 1))
    return waves + 0.5 * torch.randn(count, CHANNELS, SAMPLES), deeds


class Residual(nn.Module):
    def __init__(self, width, gap):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 5, padding=2 * gap, dilation=gap)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, hidden):
        return hidden + F.relu(self.norm(self.conv(hidden)))


class TrackNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.stem = nn.Conv1d(CHANNELS, width, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(*(Residual(width, gap) for gap in (1, 2, 4, 8, 16)))
        self.head = nn.Linear(width, DEEDS)

    def forward(self, waves):
        return self.head(self.blocks(self.stem(waves)).mean(2))


class Callback:
    def on_epoch_begin(self, trainer): ...

    def on_step_end(self, trainer, loss): ...

    def on_epoch_end(self, trainer): ...


class Progress(Callback):
    def __init__(self, every):
        self.every, self.losses = every, []

    def on_step_end(self, trainer, loss):
        self.losses.append(loss.detach())

    def on_epoch_end(self, trainer):
        if trainer.epoch % self.every == 0:
            print(f"epoch {trainer.epoch} loss {torch.stack(self.losses).mean():.4f}")
        self.losses.clear()


class RateWarmup(Callback):
    def __init__(self, epochs):
        self.epochs = epochs

    def on_epoch_begin(self, trainer):
        for group in trainer.optimizer.param_groups:
            group["lr"] = trainer.rate * min(1.0, (trainer.epoch + 1) / self.epochs)


class ActivationStats(Callback):
    """Keeps an eye on dead and exploding units: the spread of every layer's output, per epoch."""

    def __init__(self, tidy=False):
        self.tidy, self.handles, self.seen = tidy, [], None

    def on_epoch_begin(self, trainer):
        seen = self.seen = defaultdict(list)

        def watch(name):
            def note(module, inputs, output):
                out = output.detach()
                seen[name].append((out.mean(), out.std(), (out <= 0).float().mean()))  # guilty

            return note

        for name, module in trainer.net.named_modules():
            if isinstance(module, nn.Conv1d):
                self.handles.append(module.register_forward_hook(watch(name)))  # guilty

    def on_epoch_end(self, trainer):
        spread = {name: torch.stack([std for _, std, _ in rows]).mean() for name, rows in self.seen.items()}
        trainer.history.append(torch.stack(list(spread.values())))
        if self.tidy:
            for handle in self.handles:
                handle.remove()
            self.handles.clear()


class Trainer:
    def __init__(self, net, rate, callbacks):
        self.net, self.rate, self.callbacks = net, rate, callbacks
        self.optimizer = torch.optim.SGD(net.parameters(), rate, momentum=0.9, nesterov=True)
        self.epoch, self.history = 0, []

    def call(self, event, *args):
        for callback in self.callbacks:
            getattr(callback, event)(self, *args)

    def fit(self, waves, deeds, steps, batch):
        left = steps
        while left > 0:
            self.call("on_epoch_begin")
            for rows in torch.randperm(len(waves)).split(batch)[:left]:
                loss = F.cross_entropy(self.net(waves[rows]), deeds[rows], label_smoothing=0.05)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.call("on_step_end", loss)
                left -= 1
            self.call("on_epoch_end")
            self.epoch += 1


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=104)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(23)
    waves, deeds = tracks(512)
    callbacks = [RateWarmup(5), ActivationStats(tidy=args.fixed), Progress(every=4)]
    trainer = Trainer(TrackNet(), 0.02, callbacks)
    trainer.fit(waves, deeds, args.steps, batch=64)
    print(f"spread of the layers: {[round(value, 2) for value in trainer.history[-1].tolist()]}")


if __name__ == "__main__":
    main()
