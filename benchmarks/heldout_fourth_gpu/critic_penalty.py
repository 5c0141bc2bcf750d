"""A convolutional Wasserstein GAN whose critic is held to a slope of one by second derivatives.

expects: none
needs: gpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Generator(nn.Module):
    def __init__(self, latent, w):
        super().__init__()
        self.w = w
        self.fc = nn.Linear(latent, 8 * w * 16)
        self.convs = nn.ModuleList(nn.Conv2d(c, c // 2, 3, 1, 1) for c in (8 * w, 4 * w, 2 * w))
        self.out = nn.Conv2d(w, 3, 3, 1, 1)

    def forward(self, z):
        x = self.fc(z).view(-1, 8 * self.w, 4, 4)
        for conv in self.convs:
            x = F.leaky_relu(conv(F.interpolate(x, scale_factor=2.0)), 0.2)
        return torch.tanh(self.out(F.interpolate(x, scale_factor=2.0)))


class Critic(nn.Module):
    def __init__(self, w):
        super().__init__()
        dims = [3, w, 2 * w, 4 * w, 8 * w]
        self.convs = nn.ModuleList(nn.Conv2d(dims[i], dims[i + 1], 4, 2, 1) for i in range(4))
        self.fc = nn.Linear(8 * w * 16, 1)

    def forward(self, x):
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.2)
        return self.fc(x.flatten(1)).squeeze(1)


def penalty(critic, real, fake):
    mix = torch.rand(len(real), 1, 1, 1, device=real.device)
    x = torch.lerp(real, fake, mix).requires_grad_()
    (grad,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return (grad.flatten(1).norm(dim=1) - 1).pow(2).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=250)
    ap.add_argument("--fixed", action="store_true", help="changes nothing")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--critic-steps", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    device, cuda = torch.device(args.device), args.device != "cpu"
    width, batch = (128, 128) if cuda else (4, 2)
    generator = Generator(128, width).to(device, memory_format=torch.channels_last)
    critic = Critic(width).to(device, memory_format=torch.channels_last)
    opt_g = torch.optim.Adam(generator.parameters(), 1e-4, betas=(0.0, 0.9), fused=cuda)
    opt_c = torch.optim.Adam(critic.parameters(), 1e-4, betas=(0.0, 0.9), fused=cuda)
    pictures = torch.rand(4096 if cuda else 8, 3, 64, 64, device=device).mul_(2).sub_(1)
    for step in range(1, args.steps + 1):
        critic.requires_grad_(True)
        for _ in range(args.critic_steps):
            real = pictures[torch.randint(0, len(pictures), (batch,), device=device)]
            real = real.to(memory_format=torch.channels_last)
            with torch.no_grad():
                fake = generator(torch.randn(batch, 128, device=device))
            loss_c = critic(fake).mean() - critic(real).mean() + 10 * penalty(critic, real, fake)
            opt_c.zero_grad(set_to_none=True)
            loss_c.backward()
            opt_c.step()
        critic.requires_grad_(False)
        loss_g = -critic(generator(torch.randn(batch, 128, device=device))).mean()
        opt_g.zero_grad(set_to_none=True)
        loss_g.backward()
        opt_g.step()
        if step % 50 == 0:
            print(f"step {step} critic {loss_c.item():.3f} generator {loss_g.item():.3f}")


if __name__ == "__main__":
    main()
