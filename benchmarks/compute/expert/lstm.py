"""plain/lstm.py as an expert would write it: half precision, decoder and loss compiled, a fused optimizer.

cuDNN has the LSTM's kernels, which torch.compile leaves alone. Autocast runs it in float16 whatever type it is given
(`_cudnn_rnn_cast_reflatten` in ATen), so the loss is scaled: the gradients of a mean over 8,192 tokens would be among
float16's subnormal numbers.
"""

# mypy: ignore-errors

import _checkout  # noqa: F401
import torch
import torch.nn.functional as F

from benchmarks.compute.plain.lstm import Pace, detach, get_batch, make_data, make_model, parse


def decode(model, out, y):
    return F.cross_entropy(model.decoder(out).view(-1, model.vocab), y)


def main():
    args = parse()
    device = torch.device(args.device)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    model = make_model(args.tiny).to(device)
    window, text = make_data(args.tiny, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")

    model.train()
    compiled_decode = torch.compile(decode)
    hidden = None
    pace = Pace(args.steps, device)
    for step in range(args.steps):
        pace.at(step)
        x, y = get_batch(text, window, step)
        hidden = detach(hidden)
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            out, hidden = model.lstm(model.encoder(x), hidden)
            loss = compiled_decode(model, out, y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        scaler.step(optimizer)
        scaler.update()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    pace.at(args.steps)
    pace.report(len(text), loss.item())


if __name__ == "__main__":
    main()
