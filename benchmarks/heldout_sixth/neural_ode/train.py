"""A neural differential equation is fitted to predator and prey curves, with LBFGS and a line search.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
from ode import Field, integrate, simulate


def fit(field, curves, times, steps, batch_size):
    """One LBFGS step for each part of the curves, which it sees several times in its closure."""
    optimizer = torch.optim.LBFGS(field.parameters(), lr=0.5, max_iter=3, history_size=8, line_search_fn="strong_wolfe")
    for step in range(1, steps + 1):
        rows = torch.randint(len(curves), (batch_size,))
        observed = curves[rows]

        def closure():
            optimizer.zero_grad()
            path = integrate(field, observed[:, 0], times)
            loss = nn.functional.huber_loss(path, observed)
            loss = loss + 1e-5 * sum(weight.square().sum() for weight in field.parameters())
            loss.backward()
            return loss

        yield step, optimizer.step(closure)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=120)
    cli.add_argument("--fixed", action="store_true", help="there is nothing to repair")
    args = cli.parse_args()
    torch.manual_seed(10)
    times = torch.linspace(0, 1.6, 9)
    curves = simulate(1500, times, seed=2)
    held, curves = curves[:100], curves[100:]
    field = Field()
    for step, loss in fit(field, curves, times, args.steps, 96):
        if step % 40 == 0:
            with torch.no_grad():
                error = (integrate(field, held[:, 0], times) - held).abs().mean().item()
            print(f"step {step} loss {loss.item():.5f} held out error {error:.4f}")


if __name__ == "__main__":
    main()
