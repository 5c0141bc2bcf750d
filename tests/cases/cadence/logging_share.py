"""Runs and code that have CA604, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import LineCost, Location, PauseSite
from tests.cases.code import STEPS, SourceCase, in_each_step
from tests.cases.evidence import HERE, Case, on_gpu, run


def _logs(count: int, total_s: float, where: Location = HERE) -> tuple[PauseSite, ...]:
    return (PauseSite(where, "train", "logging", count, total_s, 3 * total_s / count),)


_MS = {"data": 1.0, "forward": 30.0, "backward": 50.0, "optimizer": 4.0}
CASES = (
    Case(
        "finds it when each step writes scalars",
        run(
            ms={**_MS, "logging": 12.0},
            pauses=_logs(3000, 3.6),
            source={("train.py", 10): "writer.add_scalar(name, x)"},
        ),
        found=True,
    ),
    Case(
        "finds it when a GPU waits for figures",
        run(gpu=on_gpu(), ms={**_MS, "logging": 12.0}, pauses=_logs(10, 3.6)),
        found=True,
    ),
    Case(
        "finds it when making the picture takes longer than writing it",
        run(
            ms={**_MS, "logging": 1.0, "other": 12.0},
            pauses=(PauseSite(HERE, "diary", "logging", 300, 0.3, 0.01),),
            all_lines=(LineCost(Location("train.py", 8), "diary", "other", 0.12, 12.0),),
        ),
        found=True,
    ),
    Case("quiet when it takes 1%", run(ms={**_MS, "logging": 1.0}, pauses=_logs(300, 0.3)), found=False),
    Case(
        "quiet when a busy GPU hides it",
        run(gpu=on_gpu(drained_share=0.0), ms={**_MS, "logging": 12.0}, pauses=_logs(300, 3.6)),
        found=False,
    ),
    Case(
        "quiet when it is a progress bar",
        run(ms={**_MS, "logging": 12.0}, pauses=_logs(300, 3.6), source={("train.py", 10): "pbar.set_postfix(loss=x)"}),
        found=False,
    ),
)

SOURCE_CASES = (
    in_each_step("finds it when images are written", 'writer.add_images("x", x, step)  # found'),
    in_each_step(
        "finds it when histograms are made of all parameters",
        "for name, p in model.named_parameters():",
        "    writer.add_histogram(name, p, step)  # found",
    ),
    in_each_step("finds it when figures are saved", "plt.savefig(path)  # found"),
    in_each_step(
        "finds it when only the writer is asked for", "if writer is not None:", "    writer.add_image('x', x)  # found"
    ),
    in_each_step("finds it when a service is sent pictures", "wandb.log({'x': wandb.Image(x)})  # found"),
    SourceCase(
        "finds it when a function leaves most steps out, but not enough",
        "def log(step, x):\n    if step % 2:\n        return\n    writer.add_image('x', x, step)  # found\n"
        + STEPS % "log(step, x)",
    ),
    in_each_step(
        "quiet when it is done every hundred steps", "if step % 100 == 0:", "    writer.add_images('x', x, step)"
    ),
    in_each_step("quiet when a setting asks for it", "if args.images:", "    writer.add_images('x', x, step)"),
    in_each_step("quiet when scalars are written", "writer.add_scalar('lr', lr, step)"),
    in_each_step("quiet when something else is an image", "image = pil.Image(x)"),
)
