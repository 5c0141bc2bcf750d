"""Self-supervised pairs after the manner of BYOL: two views, an online and a slow branch, and no negatives.

expects: none
needs: gpu
"""

# mypy: ignore-errors
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


def conv_stage(cin, cout):
    return nn.Sequential(
        *(nn.Conv2d(cin, cout, 3, 2, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)),
        *(nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)),
        *(nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)),
    )


def projector(i, width, o):
    return nn.Sequential(nn.Linear(i, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, o))


class Branch(nn.Module):
    def __init__(self, w, out):
        super().__init__()
        self.body = nn.Sequential(conv_stage(3, w), conv_stage(w, 2 * w), conv_stage(2 * w, 4 * w))
        self.project = projector(4 * w, 16 * w, out)

    def forward(self, x):
        return self.project(self.body(x).mean((2, 3)))


def view(x, size):
    """A crop, a flip, some color and some noise, for the whole batch on the device."""
    r, c = torch.randint(0, x.shape[-1] - size + 1, (2,)).tolist()
    x = x[..., r : r + size, c : c + size]
    gain = 0.6 + 0.8 * torch.rand(len(x), 3, 1, 1, device=x.device)
    x = torch.where(torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5, x.flip(3), x)
    return (x * gain + 0.05 * torch.randn_like(x)).to(memory_format=torch.channels_last)


def regression_loss(p, z):
    return 2 - 2 * F.cosine_similarity(p.float(), z.float(), dim=1).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true", help="changes nothing")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device, cuda = torch.device(args.device), args.device != "cpu"
    width, size, batch = (96, 112, 192) if cuda else (8, 24, 4)
    online = Branch(width, 256).to(device, memory_format=torch.channels_last)
    slow = copy.deepcopy(online).requires_grad_(False)
    predictor = projector(256, 1024, 256).to(device)
    params = [*online.parameters(), *predictor.parameters()]
    optimizer = torch.optim.SGD(params, 0.1, momentum=0.9, weight_decay=1e-6, fused=cuda)
    pictures = torch.rand(2048 if cuda else 16, 3, size + 16, size + 16, device=device)
    for step in range(1, args.steps + 1):
        x = pictures[torch.randint(0, len(pictures), (batch,), device=device)]
        a, b = view(x, size), view(x, size)
        with torch.autocast(device.type, torch.bfloat16):
            with torch.no_grad():
                za, zb = slow(a), slow(b)
            loss = regression_loss(predictor(online(a)), zb) + regression_loss(predictor(online(b)), za)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(slow.parameters()), list(online.parameters()), 0.01)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
