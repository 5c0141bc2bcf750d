"""A decoder-only transformer."""

# mypy: ignore-errors
import torch
import torch.nn as nn
import torch.nn.functional as F


class DecoderBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*qkv, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.fc(self.n2(x))


class Decoder(nn.Module):
    def __init__(self, vocab, cfg):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, cfg["width"]), nn.Embedding(cfg["block_size"], cfg["width"])
        self.blocks = nn.Sequential(*(DecoderBlock(cfg["width"], cfg["heads"]) for _ in range(cfg["layers"])))
        self.norm, self.head = nn.LayerNorm(cfg["width"]), nn.Linear(cfg["width"], vocab)
        self.register_buffer("index", torch.arange(cfg["block_size"]))

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.tok(ids) + self.pos(self.index[: ids.size(1)]))))
