"""An image-to-latent autoencoder with a saver that keeps the newest state on disk in case the job is preempted.

expects: CA603
needs: gpu
"""

# mypy: ignore-errors
import argparse
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


class PreemptionSaver:
    def __init__(self, folder, every):
        self.path, self.every = os.path.join(folder, "latest.pt"), every

    def __call__(self, step, **parts):
        if step % self.every:
            return
        state = {name: part.state_dict() for name, part in parts.items()}
        torch.save({"step": step, **state}, self.path + ".tmp")  # guilty
        os.replace(self.path + ".tmp", self.path)


class Down(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 4, 2, 1)
        self.res = nn.Sequential(nn.GroupNorm(8, cout), nn.SiLU(), nn.Conv2d(cout, cout, 3, 1, 1))

    def forward(self, x):
        x = self.conv(x)
        return x + self.res(x)


class Up(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.ConvTranspose2d(cin, cout, 4, 2, 1)
        self.res = nn.Sequential(nn.GroupNorm(8, cout), nn.SiLU(), nn.Conv2d(cout, cout, 3, 1, 1))

    def forward(self, x):
        x = self.conv(x)
        return x + self.res(x)


class AutoEncoder(nn.Module):
    def __init__(self, w, latent):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, w, 3, 1, 1), Down(w, 2 * w), Down(2 * w, 4 * w), Down(4 * w, 8 * w))
        self.to_latent, self.from_latent = nn.Conv2d(8 * w, latent, 1), nn.Conv2d(latent, 8 * w, 1)
        self.decoder = nn.Sequential(Up(8 * w, 4 * w), Up(4 * w, 2 * w), Up(2 * w, w), nn.Conv2d(w, 3, 3, 1, 1))

    def forward(self, x):
        z = self.to_latent(self.encoder(x))
        return self.decoder(self.from_latent(z)), z


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=360)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device, cuda = torch.device(args.device), args.device != "cpu"
    width, size, batch = (96, 128, 24) if cuda else (8, 16, 2)
    model = AutoEncoder(width, 8).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-4, fused=cuda)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    images = torch.rand(512 if cuda else 8, 3, size, size, device=device)
    with tempfile.TemporaryDirectory() as folder:
        save = PreemptionSaver(folder, 120 if args.fixed else 12)
        for step in range(1, args.steps + 1):
            x = images[torch.randint(0, len(images), (batch,), device=device)]
            x = x.to(memory_format=torch.channels_last)
            with torch.autocast(device.type, torch.bfloat16):
                out, z = model(x)
                loss = F.l1_loss(out, x) + 1e-4 * z.pow(2).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            save(step, model=model, optimizer=optimizer, scheduler=scheduler)  # guilty
            if step % 60 == 0:
                print(f"step {step} l1 {loss.item():.4f}")


if __name__ == "__main__":
    main()
