"""Invents woven fabrics: Wasserstein GAN with gradient penalty, two critic updates for each update of the generator.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn

SIDE, NOISE = 32, 48


def fabrics(count, generator):
    """Weaves from periodic warp and weft colours under a twill pattern."""
    places = torch.arange(SIDE)
    warp = torch.rand(count, 3, 4, generator=generator)
    weft = torch.rand(count, 3, 4, generator=generator)
    pitch = torch.randint(1, 4, (count, 1), generator=generator)
    columns = (places // pitch) % 4
    warps = torch.gather(warp, 2, columns[:, None].expand(-1, 3, -1))[:, :, None, :]
    wefts = torch.gather(weft, 2, columns[:, None].expand(-1, 3, -1))[:, :, :, None]
    lean = torch.randint(-1, 2, (count, 1, 1), generator=generator)
    over = ((places[None, :, None] * lean + places[None, None, :]) % 4 < 2)[:, None]
    cloth = torch.where(over, warps, wefts)
    return 2 * cloth - 1 + 0.03 * torch.randn(cloth.shape, generator=generator)


class Generator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.start = nn.Linear(NOISE, 4 * width * 16)
        self.grow = nn.Sequential(
            nn.BatchNorm2d(4 * width), nn.ReLU(True),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, noise):
        return self.grow(self.start(noise).unflatten(1, (-1, 4, 4)))


class Critic(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Flatten(), nn.Linear(4 * width * 16, 1),
        )  # fmt: skip

    def forward(self, cloth):
        return self.layers(cloth).squeeze(1)


class Loom:
    """Both players with their optimizers."""

    def __init__(self, stock, batch, lean=10.0):
        self.stock, self.batch, self.lean = stock, batch, lean
        self.generator, self.critic = Generator(), Critic()
        self.average = Generator().requires_grad_(False)
        self.average.load_state_dict(self.generator.state_dict())
        self.generator_steps = torch.optim.Adam(self.generator.parameters(), 3e-4, betas=(0.0, 0.9))
        self.critic_steps = torch.optim.Adam(self.critic.parameters(), 3e-4, betas=(0.0, 0.9))

    def noise(self):
        return torch.randn(self.batch, NOISE)

    def penalty(self, real, made):
        """The critic's slope between real and made cloth should be one."""
        share = torch.rand(self.batch, 1, 1, 1)
        between = torch.lerp(real, made, share).requires_grad_()
        (slope,) = torch.autograd.grad(self.critic(between).sum(), between, create_graph=True)
        return (slope.flatten(1).norm(dim=1) - 1).square().mean()

    def judge(self):
        real = self.stock[torch.randint(len(self.stock), (self.batch,))]
        with torch.no_grad():
            made = self.generator(self.noise())
        real_score, made_score = self.critic(torch.cat([real, made])).chunk(2)
        distance = real_score.mean() - made_score.mean()
        loss = self.lean * self.penalty(real, made) - distance + 1e-3 * real_score.square().mean()
        self.critic_steps.zero_grad()
        loss.backward()
        self.critic_steps.step()
        return distance.item()

    def weave(self):
        self.critic.requires_grad_(False)
        loss = -self.critic(self.generator(self.noise())).mean()
        self.generator_steps.zero_grad()
        loss.backward()
        self.generator_steps.step()
        self.critic.requires_grad_(True)
        pairs = zip(self.average.parameters(), self.generator.parameters())
        with torch.no_grad():
            for old, new in pairs:
                old.lerp_(new, 0.02)
        return loss.item()


@torch.no_grad()
def moments_apart(generator, stock):
    """How far the colours and the contrast between neighbours of made cloth are from real cloth."""
    made, real = generator(torch.randn(256, NOISE)), stock[:256]
    contrast = (made.diff(dim=3).abs().mean() - real.diff(dim=3).abs().mean()).abs()
    return (F.l1_loss(made.std((0, 2, 3)), real.std((0, 2, 3))) + contrast).item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=32)
    args = cli.parse_args()
    torch.manual_seed(23)

    stock = fabrics(4000, torch.Generator().manual_seed(80))
    loom = Loom(stock, args.batch)
    distance = score = 0.0
    for step in range(1, args.steps + 1):
        for _ in range(2):
            distance += 0.05 * (loom.judge() - distance)
        score += 0.05 * (loom.weave() - score)
        if step % 50 == 0 or step == args.steps:
            apart = moments_apart(loom.generator, stock)
            print(f"step {step} distance {distance:.3f} generator {score:.3f} moments apart {apart:.3f}")


if __name__ == "__main__":
    main()
