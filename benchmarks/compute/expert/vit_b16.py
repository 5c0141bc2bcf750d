"""plain/vit_b16.py as an expert would write it: bfloat16, compiled, a fused optimizer."""

# mypy: ignore-errors

import _checkout  # noqa: F401
import torch
import torch.nn as nn

from benchmarks.compute.plain.vit_b16 import Pace, make_data, make_model, parse


def main():
    args = parse()
    device = torch.device(args.device)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    model = make_model(args.tiny).to(device)
    batch_size, images, labels = make_data(args.tiny, device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05, fused=True)

    model.train()
    compiled = torch.compile(model)
    pace = Pace(args.steps, device)
    for step in range(args.steps):
        pace.at(step)
        start = step % 8 * batch_size
        x, y = images[start : start + batch_size], labels[start : start + batch_size]
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = criterion(compiled(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    pace.at(args.steps)
    pace.report(batch_size, loss.item())


if __name__ == "__main__":
    main()
