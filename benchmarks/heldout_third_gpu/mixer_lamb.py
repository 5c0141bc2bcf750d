"""An MLP-Mixer with LAMB, the optimizer written out.

expects: HO403
needs: gpu
"""

# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.optim import Optimizer


class Lamb(Optimizer):
    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.02):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:  # guilty
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                state["step"] += 1
                m, v = state["exp_avg"], state["exp_avg_sq"]
                m.mul_(beta1).add_(p.grad, alpha=1 - beta1)  # guilty
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)  # guilty
                m_hat = m / (1 - beta1 ** state["step"])  # guilty
                v_hat = v / (1 - beta2 ** state["step"])  # guilty
                update = m_hat / (v_hat.sqrt() + group["eps"])  # guilty
                update = update + group["weight_decay"] * p  # guilty
                weight_norm, update_norm = p.norm(), update.norm()  # guilty
                trust = torch.where(weight_norm > 0, weight_norm / (update_norm + 1e-8), 1.0)  # guilty
                p.sub_(group["lr"] * trust * update)  # guilty


class LambForeach(Lamb):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            params = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]
            state = self.state[params[0]]
            if not state:
                state["step"] = 0
                state["m"] = [torch.zeros_like(p) for p in params]
                state["v"] = [torch.zeros_like(p) for p in params]
            state["step"] += 1
            torch._foreach_lerp_(state["m"], grads, 1 - beta1)
            torch._foreach_mul_(state["v"], beta2)
            torch._foreach_addcmul_(state["v"], grads, grads, 1 - beta2)
            update = torch._foreach_div(state["m"], 1 - beta1 ** state["step"])
            below = torch._foreach_div(state["v"], 1 - beta2 ** state["step"])
            torch._foreach_sqrt_(below)
            torch._foreach_add_(below, group["eps"])
            torch._foreach_div_(update, below)
            torch._foreach_add_(update, params, alpha=group["weight_decay"])
            weight_norm = torch.stack(torch._foreach_norm(params))
            update_norm = torch.stack(torch._foreach_norm(update))
            trust = torch.where(weight_norm > 0, weight_norm / (update_norm + 1e-8), 1.0)
            torch._foreach_mul_(update, list((-group["lr"] * trust).unbind()))
            torch._foreach_add_(params, update)


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.across = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.within = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, tokens, patch_dim, dim, depth, classes):
        super().__init__()
        self.embed = nn.Linear(patch_dim, dim)
        self.blocks = nn.Sequential(*(MixerBlock(tokens, dim) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, patches):
        return self.head(self.norm(self.blocks(self.embed(patches))).mean(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(8)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokens, dim, depth, batch = (16, 32, 2, 4) if args.tiny else (192, 384, 24, 96)
    data = torch.randn(1024, tokens, 48, device=device, dtype=torch.bfloat16)
    target = (data[:, :, 0].float().mean(1) * 200).long().remainder(100)
    model = Mixer(tokens, 48, dim, depth, 100).to(device)
    optimizer = (LambForeach if args.fixed else Lamb)(model.parameters())
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for step in range(args.steps):
        chosen = torch.randint(len(data), (batch,), device=device)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = criterion(model(data[chosen]), target[chosen])
        loss.backward()
        optimizer.step()  # guilty
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print("step", step, "loss", round(loss.item(), 4))


if __name__ == "__main__":
    main()
