"""An RL loop: collect under no_grad with single observations, then several minibatch updates a round."""

from __future__ import annotations

import torch
from torch import nn
from truth import Truth

torch.manual_seed(0)
torch.set_num_threads(1)
policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
truth = Truth()
for _round in range(4):
    states, actions, rewards = [], [], []
    state = torch.randn(4)
    with torch.no_grad():
        for _ in range(64):
            action = torch.distributions.Categorical(logits=policy(state)).sample()
            states.append(state)
            actions.append(action)
            rewards.append(1.0 if action.item() == 0 else 0.0)
            state = torch.randn(4)
    seen, chosen, gains = torch.stack(states), torch.stack(actions), torch.tensor(rewards)
    for _update in range(6):
        pick = torch.randperm(64)[:32]
        log_prob = torch.distributions.Categorical(logits=policy(seen[pick])).log_prob(chosen[pick])
        optimizer.zero_grad()
        (-log_prob * gains[pick]).mean().backward()
        optimizer.step()
        truth.step(32)
truth.tell()
