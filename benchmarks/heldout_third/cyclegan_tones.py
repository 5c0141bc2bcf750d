"""CycleGAN between two domains of small colour patches: two generators, two critics, three optimizers.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F


class Generator(nn.Module):
    def __init__(self, w=10):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, w, 5, padding=2),
            nn.InstanceNorm2d(w),
            nn.ReLU(True),
            nn.Conv2d(w, w, 3, padding=1),
            nn.InstanceNorm2d(w),
            nn.ReLU(True),
            nn.Conv2d(w, 3, 5, padding=2),
            nn.Tanh(),
        )

    def forward(self, x):
        return self.net(x)


class Critic(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, w, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(w, 2 * w, 4, 2, 1), nn.LeakyReLU(0.2)
        )
        self.out = nn.Conv2d(2 * w, 1, 3, padding=1)

    def forward(self, x):
        return self.out(self.net(x))


class CycleGAN:
    def __init__(self, reuse):
        self.ab, self.ba, self.da, self.db = Generator(), Generator(), Critic(), Critic()
        self.og = torch.optim.Adam(itertools.chain(self.ab.parameters(), self.ba.parameters()), 2e-4, (0.5, 0.999))
        self.oa = torch.optim.Adam(self.da.parameters(), 2e-4, (0.5, 0.999))
        self.ob = torch.optim.Adam(self.db.parameters(), 2e-4, (0.5, 0.999))
        self.reuse = reuse

    def adversarial(self, critic, fake):
        out = critic(fake)
        return F.mse_loss(out, torch.ones_like(out))

    def generator_loss(self, a, b):
        if self.reuse:
            fb, fa = self.ab(a), self.ba(b)
            cycle = F.l1_loss(self.ba(fb), a) + F.l1_loss(self.ab(fa), b)
            return self.adversarial(self.db, fb) + self.adversarial(self.da, fa) + 10 * cycle, fa, fb
        loss = self.adversarial(self.db, self.ab(a)) + self.adversarial(self.da, self.ba(b))  # guilty
        loss = loss + 10 * F.l1_loss(self.ba(self.ab(a)), a)  # guilty
        loss = loss + 10 * F.l1_loss(self.ab(self.ba(b)), b)  # guilty
        return loss, self.ba(b), self.ab(a)  # guilty

    def critic_step(self, critic, optimizer, real, fake):
        optimizer.zero_grad()
        good, bad = critic(real), critic(fake.detach())
        loss = 0.5 * (F.mse_loss(good, torch.ones_like(good)) + F.mse_loss(bad, torch.zeros_like(bad)))
        loss.backward()
        optimizer.step()
        return loss

    def step(self, a, b):
        self.og.zero_grad()
        loss, fa, fb = self.generator_loss(a, b)  # guilty
        loss.backward()
        self.og.step()
        la = self.critic_step(self.da, self.oa, a, fa)
        lb = self.critic_step(self.db, self.ob, b, fb)
        return loss, la + lb


def domains(n, size=24):
    g = torch.Generator().manual_seed(40)
    base = F.interpolate(torch.randn(2 * n, 3, 6, 6, generator=g), size=(size, size), mode="bilinear").tanh()
    warm = torch.tensor([0.4, 0.0, -0.4]).view(1, 3, 1, 1)
    return (base[:n] + warm).clamp(-1, 1), (base[n:] - warm).clamp(-1, 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--batch", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    A, B = domains(200)
    gan = CycleGAN(args.fixed)
    for i in range(args.steps):
        ia, ib = torch.randint(len(A), (2, args.batch))
        g_loss, d_loss = gan.step(A[ia], B[ib])  # guilty
        if i % 20 == 0:
            print(f"{i:4d}  G {g_loss.item():.3f}  D {d_loss.item():.3f}")
