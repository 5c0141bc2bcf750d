# mypy: ignore-errors
"""What stands between the config and torch: device, precision, optimizer."""

import contextlib

import torch

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Fabric:
    def __init__(self, device, precision):
        self.device = torch.device(device)
        self.dtype = DTYPES.get(precision)  # guilty

    def autocast(self):
        if self.dtype is None:
            return contextlib.nullcontext()  # guilty
        return torch.autocast(self.device.type, self.dtype)

    def optimizer(self, model, cfg):
        return torch.optim.AdamW(model.parameters(), fused=self.device.type == "cuda", **cfg)

    def backward(self, loss):
        loss.backward()
