"""plain/unet3d.py as an expert would write it: bfloat16, channels last, model and loss compiled, a fused optimizer."""

# mypy: ignore-errors

import _checkout  # noqa: F401
import torch

from benchmarks.compute.plain.unet3d import Pace, loss_function, make_data, make_model, parse


def main():
    args = parse()
    device = torch.device(args.device)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    model = make_model(args.tiny).to(device, memory_format=torch.channels_last_3d)
    batch_size, volumes, targets = make_data(args.tiny, device)
    volumes = volumes.to(memory_format=torch.channels_last_3d)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.99, nesterov=True, weight_decay=3e-5, fused=True
    )

    model.train()
    compiled = torch.compile(model)
    # Dice and cross-entropy read the logits of 1.8 million voxels several times over.
    compiled_loss = torch.compile(loss_function)
    pace = Pace(args.steps, device)
    for step in range(args.steps):
        pace.at(step)
        start = step % 8 * batch_size
        x, y = volumes[start : start + batch_size], targets[start : start + batch_size]
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            # Sums over 880 thousand voxels need float32.
            loss = compiled_loss(compiled(x).float(), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 12.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    pace.at(args.steps)
    pace.report(batch_size, loss.item())


if __name__ == "__main__":
    main()
