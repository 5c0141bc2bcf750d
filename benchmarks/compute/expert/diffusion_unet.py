"""plain/diffusion_unet.py as an expert would write it: bfloat16, channels last, fused attention, compiled."""

# mypy: ignore-errors

import _checkout  # noqa: F401
import torch
import torch.nn.functional as F

from benchmarks.compute.plain import diffusion_unet
from benchmarks.compute.plain.diffusion_unet import AttentionBlock, Diffusion, Pace, make_data, make_model, parse


class FusedAttentionBlock(AttentionBlock):
    def forward(self, x):
        b, c, h, w = x.shape
        qkv = self.qkv(self.norm(x)).reshape(b, 3, self.heads, c // self.heads, h * w)
        q, k, v = qkv.transpose(-2, -1).unbind(1)
        out = F.scaled_dot_product_attention(q, k, v)
        return x + self.proj(out.transpose(-2, -1).reshape(b, c, h, w))


def main():
    args = parse()
    device = torch.device(args.device)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    # The U-Net looks its parts up by name when it is built.
    diffusion_unet.AttentionBlock = FusedAttentionBlock
    model = make_model(args.tiny).to(device, memory_format=torch.channels_last)
    batch_size, images = make_data(args.tiny, device)
    diffusion = Diffusion(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, fused=True)

    model.train()
    compiled = torch.compile(model)
    pace = Pace(args.steps, device)
    for step in range(args.steps):
        pace.at(step)
        start = step % 8 * batch_size
        x = images[start : start + batch_size]
        t = torch.randint(diffusion.timesteps, (batch_size,), device=device)
        # Drawn as before, so that it is the same noise; only then is the input's layout changed.
        noise = torch.randn_like(x)
        noisy = diffusion.add_noise(x, t, noise).to(memory_format=torch.channels_last)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            predicted = compiled(noisy, t)
            loss = F.mse_loss(predicted, noise)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    pace.at(args.steps)
    pace.report(batch_size, loss.item())


if __name__ == "__main__":
    main()
