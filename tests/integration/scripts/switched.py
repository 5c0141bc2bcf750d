"""A training under anomaly mode that ends with what is left of flatout's hooks and patches."""

import json

import torch
from torch import nn

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.autograd.set_detect_anomaly(True)
    model = nn.Sequential(nn.Linear(16, 16), *(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4)))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    x = torch.randn(8, 16)
    for step in range(5000):
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            from torch.optim import optimizer as module

            hooks = len(module._global_optimizer_pre_hooks) + len(module._global_optimizer_post_hooks)
            print("TRUTH " + json.dumps({"step": step, "hooks": hooks}), flush=True)
