"""plain/resnet50.py as an expert would write it: bfloat16, channels last, compiled, a fused optimizer."""

# mypy: ignore-errors

import _checkout  # noqa: F401
import torch
import torch.nn as nn

from benchmarks.compute.plain.resnet50 import Pace, make_data, make_model, parse


def main():
    args = parse()
    device = torch.device(args.device)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    model = make_model(args.tiny).to(device, memory_format=torch.channels_last)
    batch_size, images, labels = make_data(args.tiny, device)
    # Once for all batches, which are slices of it.
    images = images.to(memory_format=torch.channels_last)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)

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
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    pace.at(args.steps)
    pace.report(batch_size, loss.item())


if __name__ == "__main__":
    main()
