"""Adversarial training of a residual MLP for small images, with projected gradient descent as the attack.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES, SIDE = 8, 16


def make_images(n, generator):
    """Every class is a fixed smooth pattern; an image is one of them, moved, scaled and noisy."""
    patterns = F.interpolate(torch.randn(CLASSES, 3, 4, 4, generator=generator), SIDE, mode="bicubic")
    labels = torch.randint(0, CLASSES, (n,), generator=generator)
    shifts = torch.randint(-2, 3, (n,), generator=generator).tolist()
    images = torch.stack([patterns[c].roll(s, 2) for c, s in zip(labels.tolist(), shifts, strict=False)])
    images = 0.5 + 0.15 * images + 0.05 * torch.randn(images.shape, generator=generator)
    return images.clamp(0, 1), labels


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


def make_model(width=512, depth=3):
    blocks = [Block(width) for _ in range(depth)]
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(3 * SIDE * SIDE, width),
        *blocks,
        nn.LayerNorm(width),
        nn.Linear(width, CLASSES),
    )


def pgd(model, images, labels, generator, epsilon, iterations, fixed):
    """Images within epsilon of the given ones that raise the model's loss the most."""
    rate = 2.5 * epsilon / iterations
    delta = epsilon * (2 * torch.rand(images.shape, generator=generator) - 1)
    for _ in range(iterations):
        delta.requires_grad_(True)
        loss = F.cross_entropy(model((images + delta).clamp(0, 1)), labels)
        if fixed:
            (slope,) = torch.autograd.grad(loss, delta)
        else:
            loss.backward()  # guilty
            slope = delta.grad
        delta = (delta.detach() + rate * slope.sign()).clamp(-epsilon, epsilon)
    return (images + delta).clamp(0, 1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=130)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--epsilon", type=float, default=8 / 255)
    cli.add_argument("--iterations", type=int, default=7)
    args = cli.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    images, labels = make_images(2048, generator)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.003, momentum=0.9, weight_decay=5e-4, nesterov=True)
    for step in range(1, args.steps + 1):
        rows = torch.randint(0, len(images), (32,), generator=generator)
        clean, target = images[rows], labels[rows]
        attacked = pgd(model, clean, target, generator, args.epsilon, args.iterations, args.fixed)
        optimizer.zero_grad()
        logits = model(attacked)
        loss = F.cross_entropy(logits, target)
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            accuracy = (logits.argmax(1) == target).float().mean().item()
            print(f"step {step} robust loss {loss.item():.4f} accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
