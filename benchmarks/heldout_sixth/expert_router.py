"""A byte language model with a mixture of experts; each byte is routed to one of them.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import yaml

CONFIG = """
model: {width: 96, hidden: 256, depth: 2, heads: 4, experts: 8}
data: {span: 48, batch_size: 12, corpus: 60000}
optimizer: {lr: 1.0e-3, weight_decay: 0.01}
balance: 0.01
"""


def make_corpus(size, seed):
    """Bytes of a random grammar: the next byte is one of three successors of the last."""
    random = torch.Generator().manual_seed(seed)
    successors = torch.randint(0, 256, (256, 3), generator=random).tolist()
    choices = torch.randint(0, 3, (size,), generator=random).tolist()
    text, last = [], 0
    for choice in choices:
        last = successors[last][choice]
        text.append(last)
    return torch.tensor(text)


class Expert(nn.Sequential):
    def __init__(self, width, hidden):
        super().__init__(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class Mixture(nn.Module):
    def __init__(self, width, hidden, experts, fixed):
        super().__init__()
        self.fixed = fixed
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([Expert(width, hidden) for _ in range(experts)])

    def forward(self, x):
        shape, x = x.shape, x.flatten(0, 1)
        chances = self.router(x).softmax(1)
        top, choice = chances.max(1)
        routed = F.one_hot(choice, len(self.experts)).to(x.dtype)
        balance = len(self.experts) * (routed.mean(0) * chances.mean(0)).sum()
        if self.fixed:
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                rows = (choice == number).nonzero().squeeze(1)
                out = out.index_add(0, rows, expert(x[rows]) * top[rows, None])
        else:
            answers = torch.stack([expert(x) for expert in self.experts], 1)  # guilty
            out = torch.einsum("te,tew->tw", routed * top[:, None], answers)  # guilty
        return out.view(shape), balance


class Block(nn.Module):
    def __init__(self, width, hidden, heads, experts, fixed):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mixture = Mixture(width, hidden, experts, fixed)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, c))
        answer, balance = self.mixture(self.norm2(x))
        return x + answer, balance


class ByteModel(nn.Module):
    def __init__(self, span, width, hidden, depth, heads, experts, fixed):
        super().__init__()
        self.byte, self.place = nn.Embedding(256, width), nn.Embedding(span, width)
        self.blocks = nn.ModuleList([Block(width, hidden, heads, experts, fixed) for _ in range(depth)])
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, text):
        x, balance = self.byte(text) + self.place.weight, 0.0
        for block in self.blocks:
            x, extra = block(x)
            balance = balance + extra
        return self.out(self.norm(x)), balance


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=110)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    config = yaml.safe_load(CONFIG)
    torch.manual_seed(1)
    data = config["data"]
    corpus, span = make_corpus(data["corpus"], 4), data["span"]
    model = ByteModel(span, **config["model"], fixed=args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), **config["optimizer"])
    offsets = torch.arange(span + 1)
    for step in range(1, args.steps + 1):
        start = torch.randint(len(corpus) - span - 1, (data["batch_size"], 1))
        window = corpus[start + offsets]
        logits, balance = model(window[:, :-1])
        entropy = F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        loss = entropy + config["balance"] * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step} entropy {entropy.item():.4f} balance {balance.item():.3f}")


if __name__ == "__main__":
    main()
