"""A transformer in bf16, fed by pinned batches from enough workers.

expects: none
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Text(Dataset):
    def __init__(self, count):
        self.tokens = torch.randint(0, 16_000, (1 << 20,))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        start = (i * 509) % (len(self.tokens) - 513)
        return self.tokens[start : start + 513]


class Model(nn.Module):
    def __init__(self, width=1024, depth=10):
        super().__init__()
        self.embedding = nn.Embedding(16_000, width)
        layer = nn.TransformerEncoderLayer(width, 16, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 16_000)

    def forward(self, ids):
        return self.head(self.body(self.embedding(ids)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.type == "cuda"
    loader = DataLoader(Text(24 * args.steps), batch_size=24, num_workers=4, pin_memory=on_gpu)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=on_gpu)
    for tokens in loader:
        tokens = tokens.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16):
            out = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(out.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
