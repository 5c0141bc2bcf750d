"""Runs and code that have CF802, and that must stay quiet."""

from __future__ import annotations

from typing import Any

from flatout.records.evidence import Configured, Setting, Value
from flatout.records.report import Location
from tests.cases.code import SourceCase
from tests.cases.evidence import Case, on_gpu, run


def _configured(**values: Value) -> Configured:
    return Configured(
        tuple(Setting(name, f"train.{name}", value, Location("full.yaml", 33)) for name, value in values.items())
    )


def _state(**changes: Any) -> dict[str, object]:
    state = {
        "cudnn_benchmark": True,
        "cudnn_deterministic": False,
        "matmul_precision": "high",
        "matmul_allow_tf32": True,
        "grad_dtypes": {"bfloat16": 0.7, "float32": 0.3},
        **changes,
    }
    return {"torch": state, "loaders": [], "optimizers": []}


CASES = (
    Case(
        "finds it when seeding undoes cudnn_benchmark",
        run(gpu=on_gpu(), live=_state(cudnn_benchmark=False), configured=_configured(cudnn_benchmark=True)),
        found=True,
    ),
    Case(
        "finds it when AMP is configured and everything is float32",
        run(
            gpu=on_gpu(), live=_state(grad_dtypes={"float32": 1.0}), configured=_configured(amp=True, precision="bf16")
        ),
        found=True,
    ),
    Case(
        "quiet when all took effect",
        run(gpu=on_gpu(), live=_state(), configured=_configured(cudnn_benchmark=True, amp=True, tf32=True)),
        found=False,
    ),
    Case(
        "quiet when there is no GPU",
        run(live=_state(cudnn_benchmark=False), configured=_configured(cudnn_benchmark=True, amp=True)),
        found=False,
    ),
    Case(
        "quiet when determinism is had by other means",
        run(
            gpu=on_gpu(),
            live=_state(deterministic_algorithms=True),
            configured=_configured(cudnn_deterministic=True),
        ),
        found=False,
    ),
    Case(
        "quiet when the dtypes of the run are not known",
        run(gpu=on_gpu(), live=_state(grad_dtypes={}), configured=_configured(amp=True)),
        found=False,
    ),
    Case(
        "quiet when AMP is off in the config and the code uses it",
        run(gpu=on_gpu(), live=_state(), configured=_configured(amp=False, precision="fp32")),
        found=False,
    ),
)

_LOOP = """
    for batch in loader:
        loss = model(batch.cuda()).mean()
        loss.backward()
        optimizer.step()
"""
_SEEDED = """
import torch
import yaml

def seed(number):
    torch.manual_seed(number)
    torch.backends.cudnn.benchmark = BENCHMARK

def main():
    cfg = yaml.safe_load(open("c.yaml"))
    seed(cfg["seed"])
    optimizer = SGD(model.parameters(), lr=cfg["lr"])
""" + _LOOP.lstrip("\n")
_YAML = "seed: 1\nlr: 0.1\ncudnn_benchmark: true"
_FLAG = """
import argparse

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--amp", action="store_true")  # found
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    optimizer = SGD(model.parameters(), lr=args.lr)
""" + _LOOP.lstrip("\n")
SOURCE_CASES = (
    SourceCase(
        "finds it when seeding sets benchmark the other way",
        {"train.py": _SEEDED.replace("BENCHMARK", "False  # found"), "c.yaml": _YAML},
    ),
    SourceCase(
        "finds it when no code sets it",
        {
            "train.py": _SEEDED.replace("    torch.backends.cudnn.benchmark = BENCHMARK\n", ""),
            "c.yaml": f"{_YAML}  # found\n",
        },
    ),
    SourceCase("finds it when nothing reads the flag", _FLAG),
    SourceCase(
        "quiet when the code reads it",
        {"train.py": _SEEDED.replace("BENCHMARK", "cfg['cudnn_benchmark']"), "c.yaml": _YAML},
    ),
    SourceCase(
        "quiet when it is so anyway",
        {"train.py": _SEEDED.replace("BENCHMARK", "True"), "c.yaml": _YAML},
    ),
    SourceCase(
        "quiet when the code uses AMP in any case",
        _FLAG.replace("  # found", "").replace("model(batch.cuda())", "forward(torch.autocast('cuda'), batch.cuda())"),
    ),
    SourceCase(
        "quiet when the options are handed on as a whole",
        _FLAG.replace("  # found", "").replace(
            "    optimizer = ", "    engine = library.Engine(args)\n    optimizer = "
        ),
    ),
)
