"""Masked language modelling, with settings, data and model in files of their own.

expects: CO507
needs: gpu
"""

# mypy: ignore-errors

import argparse

import torch
import torch.nn.functional as F
from config import TINY, Settings
from data import FIRST_WORD, MASK, PAD, make_loader
from model import MaskedLM


def corrupt(ids, settings):
    valid = ids != PAD
    chosen = valid & (torch.rand(ids.shape, device=ids.device) < settings.mask_share)
    noise = torch.randint(FIRST_WORD, settings.vocab, ids.shape, device=ids.device)
    how = torch.rand(ids.shape, device=ids.device)
    replaced = torch.where(how < 0.8, MASK, torch.where(how < 0.9, noise, ids))
    return torch.where(chosen, replaced, ids), torch.where(chosen, ids, -100), valid


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    settings = Settings(**TINY) if args.tiny else Settings()
    torch.manual_seed(settings.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = MaskedLM(settings).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, fused=True)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 30))
    for step, ids in enumerate(make_loader(settings, args.steps, args.fixed)):
        inputs, targets, valid = corrupt(ids.to(device, non_blocking=True), settings)
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(inputs, valid)  # guilty
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warmup.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
