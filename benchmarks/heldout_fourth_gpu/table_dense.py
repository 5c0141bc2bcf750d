"""Sessions to next items: a large table of items, a small attention block over the session, sampled negatives.

expects: other
needs: gpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class SessionModel(nn.Module):
    def __init__(self, items, dim, heads, sparse):
        super().__init__()
        self.items = nn.Embedding(items, dim, sparse=sparse)  # guilty
        nn.init.normal_(self.items.weight, std=0.02)
        self.pos = nn.Parameter(torch.randn(64, dim) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, 4 * dim, 0.0, batch_first=True, norm_first=True) for _ in range(3)
        )

    def forward(self, session):
        x = self.items(session) + self.pos[: session.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return x[:, -1]


def sampled_loss(model, query, positive, negatives):
    candidates = model.items(torch.cat([positive, negatives]))
    logits = query @ candidates.T
    return F.cross_entropy(logits, torch.arange(len(query), device=query.device))


class SessionStream:
    """Sessions that drift through the catalogue, made on the device."""

    def __init__(self, items, length, device):
        self.items, self.length, self.device = items, length, device
        self.g = torch.Generator(device=device).manual_seed(0)

    def draw(self, n):
        start = torch.randint(0, self.items, (n, 1), device=self.device, generator=self.g)
        hop = torch.randint(1, 50, (n, self.length + 1), device=self.device, generator=self.g).cumsum(1)
        walk = (start + hop) % self.items
        return walk[:, :-1], walk[:, -1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device, cuda = torch.device(args.device), args.device != "cpu"
    items, dim, batch, length = (6_000_000, 192, 1024, 50) if cuda else (500, 16, 4, 8)
    model = SessionModel(items, dim, 4, sparse=args.fixed).to(device)
    stream = SessionStream(items, length, device)
    tower = [p for name, p in model.named_parameters() if not name.startswith("items")]
    optimizers = [
        torch.optim.Adagrad([model.items.weight], lr=0.05),  # guilty
        torch.optim.AdamW(tower, lr=1e-3, fused=cuda),
    ]
    for step in range(1, args.steps + 1):
        session, nxt = stream.draw(batch)
        negatives = torch.randint(0, items, (4 * batch,), device=device)
        with torch.autocast(device.type, torch.bfloat16):
            loss = sampled_loss(model, model(session), nxt, negatives)
        for o in optimizers:
            o.zero_grad(set_to_none=True)
        loss.backward()  # guilty
        for o in optimizers:
            o.step()  # guilty
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
