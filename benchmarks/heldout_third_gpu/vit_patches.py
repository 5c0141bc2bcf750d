"""A vision transformer on synthetic pictures that lie on the device.

expects: CO501
needs: gpu
line: no
"""

# mypy: ignore-errors

import argparse
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Layer(nn.Module):
    def __init__(self, dim, num_heads, norm_layer):
        super().__init__()
        self.norm1, self.attn = norm_layer(dim), Attention(dim, num_heads)
        self.norm2, self.mlp = norm_layer(dim), Mlp(dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, img_size=224, dim=512, depth=6, num_classes=1000):
        super().__init__()
        norm_layer = partial(nn.LayerNorm, eps=1e-6)
        self.patch_embed = nn.Conv2d(3, dim, 16, 16)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, (img_size // 16) ** 2 + 1, dim))
        self.layers = nn.Sequential(*(Layer(dim, dim // 64, norm_layer) for _ in range(depth)))
        self.norm = norm_layer(dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos_embed
        return self.head(self.norm(self.layers(x))[:, 0])


def main():
    parser = argparse.ArgumentParser("ViT")
    parser.add_argument("--steps", default=220, type=int)
    parser.add_argument("--batch-size", default=72, type=int)
    parser.add_argument("--lr", default=5e-4, type=float)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(42)
    if args.fixed:
        torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    img_size, dim, depth = (32, 64, 1) if args.tiny else (224, 512, 6)
    if args.tiny:
        args.batch_size = 4
    model = VisionTransformer(img_size, dim, depth).to(device)
    pictures = torch.randint(0, 256, (864, 3, img_size, img_size), dtype=torch.uint8, device=device)
    labels = torch.randint(0, 1000, (864,), device=device)
    mean = torch.tensor([0.485, 0.456, 0.406], device=device).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225], device=device).view(3, 1, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05, fused=True)
    lr_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    for step in range(args.steps):
        first = step * args.batch_size % len(pictures)
        samples = (pictures[first : first + args.batch_size].float() / 255 - mean) / std
        targets = labels[first : first + args.batch_size]
        loss = F.cross_entropy(model(samples), targets, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        lr_scheduler.step()
        if step % 50 == 0:
            print(f"Step [{step}/{args.steps}] loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
