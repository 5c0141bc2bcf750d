"""Detection by the centres of boxes.

expects: HO402, IN109
needs: gpu
"""

# mypy: ignore-errors

import argparse

import torch
import torch.nn.functional as F
from dataset import Boxes, collate
from network import Detector
from targets import DeviceTargets, HostTargets
from torch.utils.data import DataLoader


def focal(logits, heat):
    p = logits.sigmoid().clamp(1e-4, 1 - 1e-4)
    centre = heat > 0.99
    hit = -((1 - p) ** 2) * p.log() * centre
    miss = -((1 - heat) ** 4) * p**2 * (1 - p).log() * ~centre
    return (hit.sum() + miss.sum()) / centre.sum().clamp(min=1)


def sizes_loss(predicted, size):
    known = (size > 0).float()
    return ((predicted - size).abs() * known).sum() / known.sum().clamp(min=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(70)
    torch.backends.cudnn.benchmark = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    side, width, depth, batch, classes = (64, 16, 1, 2, 6) if args.tiny else (256, 128, 6, 40, 6)
    loader = DataLoader(
        Boxes(args.steps * batch, side, classes),
        batch_size=batch,
        num_workers=3,
        collate_fn=collate,
        pin_memory=device == "cuda",
        prefetch_factor=4,
    )
    model = Detector(width, depth, classes).to(device, memory_format=torch.channels_last)
    make_targets = (DeviceTargets if args.fixed else HostTargets)(side, 4, classes, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, fused=True)
    for step, (pictures, boxes, labels) in enumerate(loader):
        x = pictures.to(device, non_blocking=True).float().div_(255)
        heat, size = make_targets(boxes, labels)  # guilty
        with torch.autocast(device, dtype=torch.bfloat16):
            heat_out, size_out = model(x.contiguous(memory_format=torch.channels_last))
        loss = focal(heat_out, heat) + 0.1 * sizes_loss(size_out, size)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.3f}", F.mse_loss(heat_out.sigmoid(), heat).item())


if __name__ == "__main__":
    main()
