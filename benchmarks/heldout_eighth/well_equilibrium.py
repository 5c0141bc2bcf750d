"""Predicts the yield of wells with a deep equilibrium network: its layer is applied until nothing changes.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn

LOGS = 24


def wells(count):
    """Bore logs of every depth, and the yield that a nonlinear recursion over the depths makes of them."""
    rock = torch.randn(count, LOGS).cumsum(1) / 4
    wet = torch.zeros(count)
    for depth in range(LOGS):
        wet = 0.8 * wet + torch.sigmoid(rock[:, depth] - wet) * 0.4
    return rock, (wet - wet.mean()) / wet.std()


class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inside, self.inject = nn.Linear(width, width), nn.Linear(LOGS, width)
        nn.init.orthogonal_(self.inside.weight, 0.6)

    def forward(self, state, rock):
        return torch.tanh(F.linear(state, self.inside.weight, self.inside.bias) + self.inject(rock))


def anderson(step, start, memory=4, most=24, tolerance=2e-4):
    """A fixed point of step: the last few iterates are mixed so that their residuals cancel."""
    state, points, moved = start, [], []
    for _ in range(most):
        after = step(state)
        points, moved = [*points[1 - memory :], after], [*moved[1 - memory :], after - state]
        if moved[-1].norm() < tolerance * (1e-6 + after.norm()):
            break
        residual = torch.stack(moved, 1)
        gram = residual @ residual.transpose(1, 2) + 1e-5 * torch.eye(len(moved))
        weights = torch.linalg.solve(gram, torch.ones(len(state), len(moved), 1))
        weights = weights / weights.sum(1, keepdim=True)
        state = (torch.stack(points, 1) * weights).sum(1)
    return after


class Equilibrium(nn.Module):
    """The gradient comes from the implicit function theorem: a second fixed point, of the adjoint equation."""

    def __init__(self, cell, width):
        super().__init__()
        self.cell, self.width = cell, width

    def forward(self, rock):
        with torch.no_grad():
            state = anderson(lambda state: self.cell(state, rock), torch.zeros(len(rock), self.width))
        state = self.cell(state, rock)
        if not self.training:
            return state
        fixed = state.detach().requires_grad_()
        again = self.cell(fixed, rock.detach())

        def adjoint(grad):
            def pull(back):
                return torch.autograd.grad(again, fixed, back, retain_graph=True)[0] + grad

            return anderson(pull, grad)

        state.register_hook(adjoint)
        return state


class WellNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.solve = Equilibrium(Cell(width), width)
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, rock):
        return self.out(self.solve(rock)).squeeze(1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=250)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=256)
    args = cli.parse_args()
    torch.manual_seed(53)
    rock, gain = wells(6000)
    net = WellNet()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for step in range(1, args.steps + 1):
        rows = torch.randint(500, len(rock), (args.batch,))
        loss = F.mse_loss(net(rock[rows]), gain[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            net.eval()
            with torch.no_grad():
                held_out = F.mse_loss(net(rock[:500]), gain[:500])
            net.train()
            print(f"step {step} error {loss.item():.4f} held out {held_out.item():.4f}")


if __name__ == "__main__":
    main()
