"""A transformer in TF32 that autocast would speed up.

expects: CO502
needs: gpu
line: no
"""
# mypy: ignore-errors

import argparse
from contextlib import nullcontext

import torch
from torch import nn


class Language(nn.Module):
    def __init__(self, width=1024, depth=6, words=8192):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        return self.head(self.body(self.embedding(ids)))


def main(args):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Language().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=device.type == "cuda")
    ids = torch.randint(0, 8192, (16, 512), device=device)
    for _ in range(args.steps):
        with torch.autocast(device.type, torch.bfloat16) if args.fixed else nullcontext():
            out = model(ids[:, :-1])
            loss = nn.functional.cross_entropy(out.flatten(0, 1).float(), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--fixed", action="store_true")
    main(parser.parse_args())
