"""A recurrent policy that spells words letter by letter, trained with PPO on a reward for pronounceable ones.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

LETTERS = 28
VOWELS = torch.tensor([1, 5, 9, 15, 21])


class Speller(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.embed = nn.Embedding(LETTERS, 64)
        self.rnn = nn.GRU(64, width, batch_first=True)
        self.policy = nn.Linear(width, LETTERS)
        self.value = nn.Linear(width, 1)

    def forward(self, letters, state=None):
        h, state = self.rnn(self.embed(letters), state)
        return self.policy(h), self.value(h).squeeze(-1), state


def reward(words):
    """Vowels and consonants in turn, few repeats, and a liking for some endings."""
    vowel = torch.isin(words, VOWELS)
    turns = (vowel[:, 1:] != vowel[:, :-1]).float().mean(1)
    repeats = (words[:, 1:] == words[:, :-1]).float().mean(1)
    ending = ((words[:, -2] == 14) & (words[:, -1] == 7)).float()
    return turns - repeats + 0.5 * ending


@torch.no_grad()
def spell(model, batch, length):
    words = torch.zeros(batch, 1, dtype=torch.long)
    logps = []
    for _ in range(length):
        logits, _, _ = model(words)  # guilty
        probs = F.softmax(logits[:, -1], -1)
        letter = torch.multinomial(probs, 1)
        logps.append(probs.gather(1, letter).log())
        words = torch.cat([words, letter], 1)
    return words, torch.cat(logps, 1)


@torch.no_grad()
def spell_on(model, batch, length):
    words = [torch.zeros(batch, 1, dtype=torch.long)]
    logps, state = [], None
    for _ in range(length):
        logits, _, state = model(words[-1], state)
        probs = F.softmax(logits[:, -1], -1)
        letter = torch.multinomial(probs, 1)
        logps.append(probs.gather(1, letter).log())
        words.append(letter)
    return torch.cat(words, 1), torch.cat(logps, 1)


def ppo_loss(model, words, old, returns, clip=0.2):
    logits, value, _ = model(words[:, :-1])
    dist = F.log_softmax(logits, -1)
    logp = dist.gather(-1, words[:, 1:, None]).squeeze(-1)
    adv = returns[:, None] - value.detach()
    adv = (adv - adv.mean()) / (adv.std() + 1e-5)
    ratio = (logp - old).exp()
    gain = torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean()
    entropy = -(dist.exp() * dist).sum(-1).mean()
    return 0.5 * F.mse_loss(value, returns[:, None].expand_as(value)) - gain - 0.01 * entropy


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=480)
    cli.add_argument("--length", type=int, default=16)
    cli.add_argument("--batch", type=int, default=64)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(11)
    model = Speller()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    write = spell_on if args.fixed else spell
    for step in range(0, args.steps, 2):
        words, old = write(model, args.batch, args.length)  # guilty
        returns = reward(words[:, 1:])
        for _ in range(2):
            loss = ppo_loss(model, words, old, returns)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.3f} reward {returns.mean():.3f}")


if __name__ == "__main__":
    main()
