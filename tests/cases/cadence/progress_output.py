"""Runs and code that have CA605, and that must stay quiet."""

from __future__ import annotations

from typing import Any

from flatout.records.report import LineCost, Location, PauseSite
from tests.cases.code import STEPS, SourceCase, in_each_step
from tests.cases.evidence import HERE, Case, on_gpu, run


def _seen(text: str, ms: float, step_ms: float = 10.0) -> dict[str, Any]:
    line = LineCost(HERE, "train", "other", ms / step_ms, ms)
    return {"all_lines": (line,), "source": {(HERE.file, HERE.line): text}}


_SHOW = """def show(words, tags):
    for word, tag in zip(words, tags):
        color = GREEN if tag else RED
        print(f"{color}{word}")
%s
"""


def _shown(last: str) -> dict[str, Any]:
    """Most of the time goes to what is done for each word that is printed."""
    file = "table.py"
    costs = [LineCost(Location(file, line), "show", "forward", ms / 10, ms) for line, ms in ((3, 2.0), (4, 0.2))]
    return {
        "all_lines": tuple(costs),
        "files": {file: _SHOW % last},
        "source": {(file, 4): 'print(f"{color}{word}")'},
    }


_BAR = (PauseSite(Location("train.py", 7), "train", "logging", 300, 0.3, 0.01),)
_MS = {"data": 0.5, "forward": 3.0, "backward": 4.0, "optimizer": 1.0, "other": 1.5}
CASES = (
    Case(
        "finds it when each step prints",
        run(ms=_MS, loaders=(), **_seen('print(f"{step} {loss.item():.4f}", flush=True)', 1.4)),
        True,
    ),
    Case(
        "finds it when a bar is redrawn each step",
        run(
            ms={**_MS, "other": 0.1, "logging": 1.0},
            loaders=(),
            pauses=_BAR,
            source={("train.py", 7): "pbar.set_postfix(loss=loss.item())"},
        ),
        found=True,
    ),
    Case("finds it when a function only prepares what it prints", run(ms=_MS, loaders=(), **_shown("")), found=True),
    Case(
        "quiet when the function gives something back",
        run(ms=_MS, loaders=(), **_shown("    return color")),
        found=False,
    ),
    Case("quiet when it takes 1%", run(ms=_MS, **_seen("print(step, loss.item())", 0.1)), found=False),
    Case(
        "quiet when what is printed is what takes long", run(ms=_MS, **_seen("print(score(model))", 1.4)), found=False
    ),
    Case(
        "quiet when a busy GPU hides it",
        run(gpu=on_gpu(drained_share=0.0), ms=_MS, **_seen("print(step)", 1.4)),
        found=False,
    ),
)

SOURCE_CASES = (
    in_each_step("finds it when each step prints", "print(epoch, step)  # found"),
    in_each_step("finds it when each step is logged", "logger.info('step %d', step)  # found"),
    in_each_step("finds it when the first rank prints", "if dist.get_rank() == 0:", "    print(step)  # found"),
    in_each_step("finds it when lines go past the progress bar", "tqdm.write(str(step))  # found"),
    in_each_step("quiet when it is done every ten steps", "if step % 10 == 0:", "    print(step)"),
    in_each_step("quiet when a setting asks for it", "if args.talk:", "    print(step)"),
    in_each_step("quiet when something is wrong", "if len(x) == 0:", "    print('empty')"),
    in_each_step("quiet when it is a progress bar", "bar.set_postfix(step=step)", "bar.update(1)"),
    in_each_step("quiet when it goes to a file", "print(step, file=log)", "handle.write('x')"),
    SourceCase(
        "quiet when it is said as a wait for the device",
        (STEPS % "print(step, loss.item())").replace("model(x)", "model(x.cuda())"),
    ),
    SourceCase(
        "quiet when a turn is an episode",
        "for episode in range(9):\n    play(env)\n    loss.backward()\n    optimizer.step()\n    print(episode)\n",
    ),
)
