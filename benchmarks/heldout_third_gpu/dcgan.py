"""DCGAN: a generator and a discriminator with an optimizer each, on 64x64 pictures.

expects: IN102
needs: gpu
"""

# mypy: ignore-errors

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=220)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch-size", type=int, default=96)
parser.add_argument("--nz", type=int, default=100)
parser.add_argument("--ngf", type=int, default=128)
parser.add_argument("--ndf", type=int, default=128)
parser.add_argument("--lr", type=float, default=2e-4)
parser.add_argument("--beta1", type=float, default=0.5)


class Faces(Dataset):
    def __init__(self, length):
        rng = np.random.default_rng(3)
        coarse = rng.integers(0, 255, (512, 9, 9, 3), dtype=np.uint8)
        self.pictures = coarse.repeat(12, axis=1).repeat(12, axis=2)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        picture = Image.fromarray(self.pictures[index % len(self.pictures)])
        picture = picture.resize((72, 72), Image.Resampling.BICUBIC)
        left, top = rng.integers(0, 8, 2)
        picture = picture.crop((left, top, left + 64, top + 64))
        if rng.random() < 0.5:
            picture = ImageOps.mirror(picture)
        return torch.from_numpy(np.asarray(picture).transpose(2, 0, 1).copy())


class Generator(nn.Module):
    def __init__(self, nz, ngf):
        super().__init__()
        layers = [nn.ConvTranspose2d(nz, ngf * 8, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 8), nn.ReLU(True)]
        for i in (8, 4, 2):
            layers += [nn.ConvTranspose2d(ngf * i, ngf * i // 2, 4, 2, 1, bias=False)]
            layers += [nn.BatchNorm2d(ngf * i // 2), nn.ReLU(True)]
        self.main = nn.Sequential(*layers, nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        layers = [nn.Conv2d(3, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
        for i in (1, 2, 4):
            layers += [nn.Conv2d(ndf * i, ndf * i * 2, 4, 2, 1, bias=False)]
            layers += [nn.BatchNorm2d(ndf * i * 2), nn.LeakyReLU(0.2, inplace=True)]
        self.main = nn.Sequential(*layers, nn.Conv2d(ndf * 8, 1, 4, 1, 0, bias=False))

    def forward(self, x):
        return self.main(x).flatten()


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.normal_(m.weight, 1.0, 0.02)


def main():
    opt = parser.parse_args()
    if opt.tiny:
        opt.ngf = opt.ndf = 8
        opt.batch_size = 16
    torch.manual_seed(999)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(  # guilty
        Faces(opt.steps * opt.batch_size),
        batch_size=opt.batch_size,
        num_workers=4 if opt.fixed else 1,  # guilty
        pin_memory=device.type == "cuda",
        prefetch_factor=4,
    )
    netG = Generator(opt.nz, opt.ngf).apply(weights_init).to(device, memory_format=torch.channels_last)
    netD = Discriminator(opt.ndf).apply(weights_init).to(device, memory_format=torch.channels_last)
    optimizerD = torch.optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999), fused=True)
    optimizerG = torch.optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999), fused=True)

    for i, data in enumerate(loader):  # guilty
        real = data.to(device, non_blocking=True).float().div(127.5).sub(1)
        real = real.contiguous(memory_format=torch.channels_last)
        noise = torch.randn(opt.batch_size, opt.nz, 1, 1, device=device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            fake = netG(noise)
            on_real, on_fake = netD(real).float(), netD(fake.detach()).float()
            errD = F.softplus(-on_real).mean() + F.softplus(on_fake).mean()
        optimizerD.zero_grad()
        errD.backward()
        optimizerD.step()

        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            errG = F.softplus(-netD(fake).float()).mean()
        optimizerG.zero_grad()
        errG.backward()
        optimizerG.step()
        if i % 100 == 0:
            print(f"[{i}/{opt.steps}] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f}")


if __name__ == "__main__":
    main()
