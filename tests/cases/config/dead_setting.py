"""Code that has CF803, and that must stay quiet."""

from __future__ import annotations

from tests.cases.code import SourceCase

_LOOP = """
    for step, batch in enumerate(loader):
        loss = model(batch.cuda()).mean()
        loss.backward()
        optimizer.step()
"""
_PARSED = """
import argparse

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--accumulation-steps", type=int, default=4)FOUND
    args = parser.parse_args()
    optimizer = SGD(model.parameters(), lr=args.lr)
""" + _LOOP.lstrip("\n")
_DEAD = _PARSED.replace("FOUND", "  # found")
_QUIET = _PARSED.replace("FOUND", "")
_READ = """
import yaml

def main():
    cfg = yaml.safe_load(open("c.yaml"))
    optimizer = SGD(model.parameters(), lr=cfg["train"]["lr"], momentum=cfg["train"]["momentum"])
""" + _LOOP.lstrip("\n")
_YAML = "train:\n  lr: 0.1\n  momentum: 0.9\n  grad_accum: 8"
SOURCE_CASES = (
    SourceCase("finds it when nothing reads an option", _DEAD),
    SourceCase(
        "finds it when the option is only stored and printed",
        _DEAD.replace(
            "    optimizer = ", '    accum = args.accumulation_steps\n    print("by", accum)\n    optimizer = '
        ),
    ),
    SourceCase("finds it when nothing reads a key", {"train.py": _READ, "c.yaml": _YAML + "  # found\n"}),
    SourceCase(
        "finds it when a config for mmcv 1.x has a key of mmengine",
        {
            "configs/big.py": "data = dict(samples_per_gpu=4, workers_per_gpu=8)\n"
            "runner = dict(type='IterBasedRunner', max_iters=100)\n"
            "optimizer_config = dict(accumulative_counts=4)  # found\n"
        },
    ),
    SourceCase(
        "quiet when the loop reads it",
        _QUIET.replace(
            "        optimizer.step()", "        if step % args.accumulation_steps == 0:\n            optimizer.step()"
        ),
    ),
    SourceCase(
        "quiet when it is read under another name",
        _QUIET.replace("    optimizer = ", "    every = args.accumulation_steps\n    optimizer = ").replace(
            "        optimizer.step()", "        if step % every == 0:\n            optimizer.step()"
        ),
    ),
    SourceCase(
        "quiet when the options are handed on as a whole",
        _QUIET.replace("    optimizer = ", "    engine = Engine(**vars(args))\n    optimizer = "),
    ),
    SourceCase(
        "quiet when the section is handed on as a whole",
        {"train.py": _READ.replace("model(batch", "library.step(cfg['train'], batch"), "c.yaml": _YAML},
    ),
    SourceCase("quiet when it has nothing to do with speed", _QUIET.replace("accumulation-steps", "colour")),
    SourceCase("quiet when nothing trains here", _QUIET.replace("loss.backward()", "show(loss)")),
)
