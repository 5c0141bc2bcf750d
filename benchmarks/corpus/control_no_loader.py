"""A policy gradient on a made-up game: no loader, no dataset.

expects: none
needs: cpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn


def play(policy, start, rounds=6):
    """All games at once; returns the log-likelihoods of the moves and what they earned."""
    place, chances, reward = start, [], torch.zeros(len(start))
    for _ in range(rounds):
        moves = torch.distributions.Categorical(logits=policy(place))
        move = moves.sample()
        chances.append(moves.log_prob(move))
        place = place + 0.1 * torch.nn.functional.one_hot(move, place.shape[1])
        reward = reward - place.square().mean(1)
    return torch.stack(chances).sum(0), reward


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(32, 400), nn.Tanh(), nn.Linear(400, 400), nn.Tanh(), nn.Linear(400, 32))
    optimizer = torch.optim.Adam(policy.parameters(), 3e-4)
    for _ in range(args.steps):
        chances, reward = play(policy, torch.randn(128, 32))
        loss = -(chances * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
