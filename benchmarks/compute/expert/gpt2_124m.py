"""plain/gpt2_124m.py as an expert would write it: compiled, a fused optimizer."""

# mypy: ignore-errors

import _checkout  # noqa: F401
import torch

from benchmarks.compute.plain.gpt2_124m import Pace, get_batch, make_model, make_tokens, param_groups, parse


def main():
    args = parse()
    device = torch.device(args.device)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1337)
    batch_size, block_size, tokens = make_tokens(args.tiny)
    model = make_model(args.tiny).to(device)
    optimizer = torch.optim.AdamW(param_groups(model), lr=6e-4, betas=(0.9, 0.95), fused=True)

    # The loss is computed in the model's forward, so that it is fused as well.
    compiled = torch.compile(model)
    x, y = get_batch(tokens, batch_size, block_size, device)
    pace = Pace(args.steps, device)
    for step in range(args.steps):
        pace.at(step)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = compiled(x, y)
        x, y = get_batch(tokens, batch_size, block_size, device)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    pace.at(args.steps)
    pace.report(batch_size, loss.item())


if __name__ == "__main__":
    main()
