"""Low-rank adapters on a GPT-2 built from its config: only the adapters are handed to the optimizer.

expects: other
needs: gpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D


class LowRank(nn.Module):
    """A layer as it was, and a product of two thin matrices beside it."""

    def __init__(self, base, rank, alpha):
        super().__init__()
        inputs, outputs = base.weight.shape
        self.base, self.scale = base, alpha / rank
        self.down = nn.Parameter(torch.randn(inputs, rank) * 0.02)
        self.up = nn.Parameter(torch.zeros(rank, outputs))

    def forward(self, x):
        return self.base(x) + (x @ self.down @ self.up) * self.scale


def add_adapters(model, rank=8, alpha=16, names=("c_attn", "c_fc", "c_proj")):
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Conv1D) and name in names:
                setattr(module, name, LowRank(child, rank, alpha))
    return model


def adapter_parameters(model):
    return [p for name, p in model.named_parameters() if name.endswith((".down", ".up"))]


def freeze_base(model):
    model.requires_grad_(False)
    for p in adapter_parameters(model):
        p.requires_grad_(True)


class Dialogues:
    def __init__(self, vocab, length, device):
        self.length, self.device = length, device
        self.stream = (torch.arange(3_000_000, device=device) * 65537 % 1_000_003) % vocab
        self.window = torch.arange(length, device=device)

    def batch(self, n):
        at = torch.randint(0, len(self.stream) - self.length, (n, 1), device=self.device)
        return self.stream[at + self.window]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=280)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    device, cuda = torch.device(args.device), args.device != "cpu"
    shape = {"n_embd": 1280, "n_layer": 10, "n_head": 20, "vocab_size": 20000, "n_positions": 512}
    if not cuda:
        shape = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 100, "n_positions": 16}
    config = GPT2Config(**shape, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    model = add_adapters(GPT2LMHeadModel(config)).to(device)
    if args.fixed:
        freeze_base(model)
    params = adapter_parameters(model)
    optimizer = torch.optim.AdamW(params, 2e-4, fused=cuda)  # guilty
    data = Dialogues(config.vocab_size, config.n_positions, device)
    for step in range(1, args.steps + 1):
        ids = data.batch(24 if cuda else 2)
        with torch.autocast(device.type, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        model.zero_grad(set_to_none=True)
        loss.backward()  # guilty
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        if step % 55 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
