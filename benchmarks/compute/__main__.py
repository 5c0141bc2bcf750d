"""Seven models whose device is busy: plain, as an expert would write them, and what `flatout fix` reaches from plain.

    python -m benchmarks.compute [--only NAME ...] [--arms plain look given expert fix] [--steps N] [--tiny]

All arms of a model run one after the other on the same machine. The arm `look` is the plain script under `flatout run`:
its MFU is beside the count by hand, and what it predicts beside what the others measure. `given` is the plain script
with the expert's changes applied from outside. `fix` is a search on the plain script with `--allow numeric`; its speed
is what the search measured under what it kept. On a GPU and at full size the benchmark fails if a search reaches less
than 95% of the expert's samples a second, or if an arm fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common.bounded import run_to_end
from benchmarks.common.child import ROOT, environment
from benchmarks.common.results import RESULTS, machine, table, versions, write

FOLDER = ROOT / "benchmarks" / "compute"
ARMS = ("plain", "look", "given", "expert", "fix")
_COMPARED = ("plain", "expert", "fix")
_HALF, _LAST, _COMPILED, _FUSED = (
    "precision.bf16=true",
    "layout.channels_last=true",
    "compile.model=default",
    "optimizer.fused=true",
)
# What an expert writes, as far as it can be applied from outside.
GIVEN = {
    "resnet50": (_HALF, _LAST, _COMPILED, _FUSED, "cudnn.benchmark=true"),
    "vit_b16": (_HALF, _COMPILED, _FUSED),
    "gpt2_124m": (_COMPILED, _FUSED),
    "bert_trainer": (_HALF, _COMPILED, _FUSED),
    "diffusion_unet": (_HALF, _LAST, _COMPILED, _FUSED, "cudnn.benchmark=true"),
    "unet3d": (_HALF, _COMPILED, _FUSED, "cudnn.benchmark=true"),
    "lstm": (_HALF, _FUSED),
}
# Samples a step, at full size and tiny. A text model's sample is a sequence.
BATCHES = {
    "resnet50": (128, 4),
    "vit_b16": (64, 4),
    "gpt2_124m": (12, 4),
    "bert_trainer": (32, 4),
    "diffusion_unet": (64, 4),
    "unet3d": (2, 1),
    "lstm": (64, 4),
}
LEAST_OF_EXPERT = 0.95
# A remedy is paid back by the steps that the training has left, so the search is given a training, not a benchmark.
_FIX_STEPS = 100_000
# What a search takes beyond its budget: imports, the last trial, writing.
_BEYOND_BUDGET_S = 300.0
_TINY_STEPS = 20
_HEAD = [
    "model", "plain", "expert", "fix", "of the expert", "plain TFLOP/s", "expert TFLOP/s", "fix TFLOP/s",
    "loss plain", "loss expert", "kept", "took",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm of one model. None is "not measured"."""

    samples_per_s: float | None = None
    step_ms: float | None = None
    last_loss: float | None = None
    # The whole record of a search, and of a run that was watched.
    fix: dict[str, Any] | None = None
    run: dict[str, Any] | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Bench:
    tiny: bool
    steps: int
    budget_s: int
    limit_s: float
    scratch: Path

    def arm(self, name: str, arm: str) -> Figures:
        here = self.scratch / f"{name}-{arm}"
        here.mkdir()
        if arm == "fix":
            return self._fix(name, here)
        if arm == "look":
            return self._script(name, "plain", here, [])
        if arm == "given":
            return self._script(name, "plain", here, [f"--remedy={remedy}" for remedy in GIVEN[name]])
        return self._script(name, arm, here)

    def _script(self, name: str, written: str, here: Path, watched: Sequence[str] | None = None) -> Figures:
        """`watched`: options of `flatout run`; None: the script by itself."""
        script = [sys.executable, str(FOLDER / written / f"{name}.py"), *self._words(self.steps)]
        out = here / "run.json"
        under = [] if watched is None else [sys.executable, "-m", "flatout", "run", "--json", str(out), *watched, "--"]
        printed, code = run_to_end([*under, *script], here, environment(), self.limit_s)
        figures = _last_json(printed)
        if code != 0 or figures is None:
            return Figures(failure=_ending(printed, code, self.limit_s))
        run = json.loads(out.read_text()) if out.exists() else None
        return Figures(figures["samples_per_s"], figures["step_ms"], figures["last_loss"], run=run)

    def _fix(self, name: str, here: Path) -> Figures:
        out, limit_s = here / "fix.json", self.budget_s + _BEYOND_BUDGET_S
        options = ["--allow", "numeric", "--budget", f"{self.budget_s}s", "--json", str(out)]
        script = [sys.executable, str(FOLDER / "plain" / f"{name}.py"), *self._words(_FIX_STEPS)]
        command = [sys.executable, "-m", "flatout", "fix", *options, "--", *script]
        printed, code = run_to_end(command, here, environment(), limit_s)
        print(printed, file=sys.stderr, flush=True)
        if not out.exists():
            return Figures(failure=_ending(printed, code, limit_s))
        return _of_search(json.loads(out.read_text()), _batch(name, self.tiny))

    def _words(self, steps: int) -> list[str]:
        return ["--steps", str(steps), *(["--tiny"] if self.tiny else [])]


def flops_per_step(name: str) -> float | None:
    """FLOPs of one step at full size, counted by hand; None for models that nobody has counted.

    A multiplication and an addition are two. The backward pass has twice the forward's: once for the gradients of
    weights, once for those of inputs.
    """
    batch = BATCHES[name][0]
    if name == "resnet50":
        # 4.09e9 multiplications with an addition per image of 224 px, forward; × 2 FLOPs, × 3 for both passes.
        return 3 * 2 * 4.09e9 * batch
    if name == "gpt2_124m":
        # Per token: 6 N for the N parameters that are multiplied with, and 12 L H Q T for attention, whose two products
        # are counted as if they were not causal, as is usual.
        layers, heads, head_size, length, vocab = 12, 12, 64, 1024, 50304
        width = heads * head_size
        # Of each layer 12 width² in its matrices (4 in attention, 8 behind it) and two norms; the last norm; the
        # embedding, which is the head's matrix too. Positions are only added.
        parameters = layers * (12 * width**2 + 2 * width) + width + vocab * width
        per_token = 6 * parameters + 12 * layers * heads * head_size * length
        return float(per_token * length * batch)
    return None


def _batch(name: str, tiny: bool) -> int:
    return BATCHES[name][1 if tiny else 0]


def _of_search(record: dict[str, Any], batch: int) -> Figures:
    """A search that kept nothing has only the figure of before."""
    per_s = record["after_per_s"] or record["before_per_s"]
    if per_s is None:
        return Figures(fix=record, failure="the search measured no speed")
    steps_per_s = per_s / batch if record["unit"] == "sample" else per_s
    return Figures(batch * steps_per_s, 1e3 / steps_per_s, fix=record)


def _last_json(printed: str) -> dict[str, float] | None:
    for line in reversed(printed.splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and "samples_per_s" in value:
            return value
    return None


def _ending(printed: str, code: int | None, limit_s: float) -> str:
    last = (printed.strip().splitlines() or ["nothing was printed"])[-1][-300:]
    return f"ended after {limit_s:.0f} s: {last}" if code is None else f"exit {code}: {last}"


def share_of_expert(arms: dict[str, Figures]) -> float | None:
    fix, expert = arms.get("fix", Figures()), arms.get("expert", Figures())
    return fix.samples_per_s / expert.samples_per_s if fix.samples_per_s and expert.samples_per_s else None


def row(name: str, arms: dict[str, Figures], tiny: bool) -> list[str]:
    plain, expert, fix = (arms.get(arm, Figures()) for arm in _COMPARED)
    share, record = share_of_expert(arms), fix.fix or {}
    flops = None if tiny else flops_per_step(name)
    kept = ", ".join(f"{key}={value}" for key, value in record.get("profile", {}).items())
    return [
        name,
        *(_number(figures.samples_per_s) for figures in (plain, expert, fix)),
        "–" if share is None else f"{100 * share:.0f}%",
        *(_number(flops / figures.step_ms / 1e9 if flops and figures.step_ms else None)
          for figures in (plain, expert, fix)),
        _number(plain.last_loss),
        _number(expert.last_loss),
        kept or ("nothing" if record else "–"),
        f"{record['took_s'] / 60:.1f} min, {record['trials']} trials" if record else "–",
    ]  # fmt: skip


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}" if value < 1000 else f"{value:,.0f}"


def failures(found: dict[str, dict[str, Figures]]) -> list[str]:
    return [f"{name} {arm}: {f.failure}" for name, arms in found.items() for arm, f in arms.items() if f.failure]


def shortfalls(found: dict[str, dict[str, Figures]]) -> list[str]:
    shares = {name: share_of_expert(arms) for name, arms in found.items()}
    return [
        f"{name}: fix reaches {100 * share:.1f}% of the expert, less than {100 * LEAST_OF_EXPERT:.0f}%"
        for name, share in shares.items()
        if share is not None and share < LEAST_OF_EXPERT
    ]


_LOOK_HEAD = ["model", "watched", "MFU", "TFLOP/s", "by hand", "ladder, ms", "predicted", "given", "of the expert"]


def _look_row(name: str, arms: dict[str, Figures], tiny: bool) -> list[str]:
    """What a watched run says of the plain script, and what the same changes from outside come to."""
    look, given, expert = (arms.get(arm, Figures()) for arm in ("look", "given", "expert"))
    run = look.run or {}
    ladder = (run.get("gpu") or {}).get("ladder") or {}
    flops = None if tiny else flops_per_step(name)
    gains = [(finding["code"], finding["predicted_gain"]) for finding in run.get("findings", ())]
    share = given.samples_per_s / expert.samples_per_s if given.samples_per_s and expert.samples_per_s else None
    return [
        name,
        _number(look.samples_per_s),
        f"{ladder['mfu']:.1%} of {ladder['precision']}" if ladder else "–",
        _number(ladder.get("tflops_per_s")),
        _number(flops / look.step_ms / 1e9 if flops and look.step_ms else None),
        " → ".join(f"{rung['name']} {rung['ms']:.3g}" for rung in ladder.get("rungs", ())) or "–",
        ", ".join(f"{code} ×{gain['mid']:.2f}" for code, gain in gains if gain) or "–",
        _number(given.samples_per_s),
        "–" if share is None else f"{100 * share:.0f}%",
    ]


def _page(found: dict[str, dict[str, Figures]], tiny: bool) -> str:
    notes = "".join(f"- {line}\n" for line in failures(found))
    page = "Samples a second of each arm.\n\n" + table(_HEAD, [row(name, arms, tiny) for name, arms in found.items()])
    if any(arm in arms for arms in found.values() for arm in ("look", "given")):
        page += "\nThe plain scripts under `flatout run`, and with the expert's changes given from outside.\n\n"
        page += table(_LOOK_HEAD, [_look_row(name, arms, tiny) for name, arms in found.items()])
    return page + ("\n" + notes if notes else "")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(BATCHES), default=list(BATCHES), metavar="NAME")
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=list(ARMS))
    parser.add_argument("--steps", type=int, help="of the arms plain and expert (default: 60, with --tiny 20)")
    parser.add_argument("--tiny", action="store_true", help="small models and data, for a processor")
    parser.add_argument("--budget", type=int, default=600, metavar="S", help="seconds for one search")
    parser.add_argument("--limit", type=float, default=300.0, metavar="S", help="for one script, compiling included")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, Figures]] = {}
    with tempfile.TemporaryDirectory(prefix="flatout-compute-") as scratch:
        steps = options.steps or (_TINY_STEPS if options.tiny else 60)
        bench = Bench(options.tiny, steps, options.budget, options.limit, Path(scratch))
        for name in options.only:
            found[name] = {}
            for arm in options.arms:
                figures = found[name][arm] = bench.arm(name, arm)
                said = figures.failure or f"{_number(figures.samples_per_s)} samples/s"
                print(f"{name:<15} {arm:<7} {said}", file=sys.stderr, flush=True)
                _write(options, found)
    print(_page(found, options.tiny))
    missed = [*failures(found), *shortfalls(found)]
    if missed and not options.tiny and machine()["gpu"]:
        raise SystemExit("\n".join(missed))


def _write(options: argparse.Namespace, found: dict[str, dict[str, Figures]]) -> None:
    """After every arm: a machine that goes away keeps what it has measured."""
    used = versions("torch", "torchvision", "transformers", "accelerate")
    name = "compute-tiny" if options.tiny else "compute"
    options.results.mkdir(parents=True, exist_ok=True)
    write(name, {"versions": used, "models": found}, _page(found, options.tiny), options.results)


if __name__ == "__main__":
    main()
