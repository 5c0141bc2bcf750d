"""A small convolutional GAN that draws rune-like glyphs, trained with the non-saturating loss.

expects: CO514
needs: cpu
"""

# mypy: ignore-errors
import argparse
import itertools

import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import nn

SIZE, LATENT = 32, 64


def draw_glyphs(count, seed):
    generator = torch.Generator().manual_seed(seed)
    sheets = torch.empty(count, 1, SIZE, SIZE)
    for i in range(count):
        image = Image.new("L", (SIZE, SIZE), 0)
        pen = ImageDraw.Draw(image)
        strokes = int(torch.randint(2, 5, (1,), generator=generator))
        points = torch.randint(4, SIZE - 4, (strokes + 1, 2), generator=generator).tolist()
        for a, b in itertools.pairwise(points):
            pen.line([tuple(a), tuple(b)], fill=255, width=3)
        sheets[i, 0] = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(SIZE, SIZE) / 127.5 - 1
    return sheets


class UpBlock(nn.Module):
    def __init__(self, wide, narrow):
        super().__init__()
        self.conv = nn.Conv2d(wide, narrow, 3, padding=1)
        self.again = nn.Conv2d(narrow, narrow, 3, padding=1)
        self.norm = nn.GroupNorm(8, narrow)

    def forward(self, x):
        x = F.leaky_relu(self.conv(F.interpolate(x, scale_factor=2)), 0.1)
        return F.leaky_relu(self.norm(self.again(x)), 0.1)


class Generator(nn.Module):
    def __init__(self, width=72):
        super().__init__()
        self.start = nn.Linear(LATENT, width * 16)
        self.blocks = nn.Sequential(UpBlock(width, 56), UpBlock(56, 40), UpBlock(40, 32))
        self.to_grey = nn.Conv2d(32, 1, 3, padding=1)

    def forward(self, z):
        x = self.start(z).view(len(z), -1, 4, 4)
        return torch.tanh(self.to_grey(self.blocks(x)))


class Discriminator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        layers, narrow = [], 1
        for wide in (width, 2 * width, 3 * width):
            layers += [nn.Conv2d(narrow, wide, 4, 2, 1), nn.LeakyReLU(0.2)]
            narrow = wide
        self.body = nn.Sequential(*layers)
        self.score = nn.Linear(narrow * 16, 1)

    def forward(self, x):
        return self.score(self.body(x).flatten(1)).squeeze(1)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.gen, self.disc = Generator(), Discriminator()
        self.gen_opt = torch.optim.Adam(self.gen.parameters(), lr=2e-4, betas=(0.5, 0.99))
        self.disc_opt = torch.optim.Adam(self.disc.parameters(), lr=2e-4, betas=(0.5, 0.99))

    def noise(self):
        return torch.randn(self.args.batch_size, LATENT)

    def train_disc(self, real):
        self.disc.requires_grad_(True)
        fake = self.gen(self.noise())
        if self.args.fixed:
            fake = fake.detach()
        loss = F.softplus(-self.disc(real)).mean() + F.softplus(self.disc(fake)).mean()  # guilty
        self.disc_opt.zero_grad()
        loss.backward()  # guilty
        self.disc_opt.step()
        return loss.detach()

    def train_gen(self):
        self.disc.requires_grad_(False)
        fake = self.gen(self.noise())
        loss = F.softplus(-self.disc(fake)).mean()
        self.gen_opt.zero_grad()
        loss.backward()
        self.gen_opt.step()
        return loss.detach()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(11)
    glyphs = draw_glyphs(2000, 5)
    trainer = Trainer(args)
    for step in range(1, args.steps + 1):
        real = glyphs[torch.randint(len(glyphs), (args.batch_size,))]
        disc_loss = trainer.train_disc(real)
        gen_loss = trainer.train_gen()
        if step % 40 == 0:
            print(f"{step:5d} disc {disc_loss.item():.3f} gen {gen_loss.item():.3f}")


if __name__ == "__main__":
    main()
