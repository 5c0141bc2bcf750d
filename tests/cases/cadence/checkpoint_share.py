"""Runs and code that have CA603, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import PauseSite
from tests.cases.code import STEPS, SourceCase, in_each_step
from tests.cases.evidence import HERE, Case, on_gpu, run


def _saves(count: int, total_s: float) -> tuple[PauseSite, ...]:
    return (PauseSite(HERE, "save", "checkpoint", count, total_s, 2 * total_s / count),)


_MS = {"data": 1.0, "forward": 30.0, "backward": 50.0, "optimizer": 4.0}
CASES = (
    Case("finds it when it saves every few steps", run(ms={**_MS, "checkpoint": 15.0}, pauses=_saves(60, 4.5)), True),
    Case(
        "finds it when a GPU waits for long saves",
        run(gpu=on_gpu(), ms={**_MS, "checkpoint": 15.0}, pauses=_saves(10, 4.5)),
        True,
    ),
    Case("quiet when it takes 1%", run(ms={**_MS, "checkpoint": 1.0}, pauses=_saves(10, 0.3)), found=False),
    Case("quiet when there is only the last one", run(ms=_MS, pauses=_saves(1, 6.0)), found=False),
    Case(
        "quiet when short saves hide behind a busy GPU",
        run(gpu=on_gpu(drained_share=0.0), ms={**_MS, "checkpoint": 10.0}, pauses=_saves(300, 3.0)),
        found=False,
    ),
)

SOURCE_CASES = (
    in_each_step("finds it when each step saves", 'torch.save(model.state_dict(), "last.pt")  # found'),
    in_each_step(
        "finds it when the first rank saves", "if rank == 0:", "    save_checkpoint(model, optimizer)  # found"
    ),
    in_each_step("finds it when a model is written as a whole", "model.save_pretrained(folder)  # found"),
    in_each_step(
        "finds it when it is done every five steps", "if step % 5 == 0:", "    torch.save(model, path)  # found"
    ),
    SourceCase(
        "finds it when a function of the script's own writes it",
        "def snapshot(model):\n    torch.save(model.state_dict(), 'last.pt')\n" + STEPS % "snapshot(model)  # found",
    ),
    in_each_step("quiet when it is done every thousand steps", "if step % 1000 == 0:", "    torch.save(model, path)"),
    in_each_step("quiet when it is done for the best", "if loss < best:", "    torch.save(model, path)"),
    in_each_step("quiet when an interval is set elsewhere", "if should_save(step):", "    torch.save(model, path)"),
    in_each_step("quiet when a picture is saved", "image.save(path)", "np.save(path, x)"),
    SourceCase(
        "quiet when it is once an epoch",
        (STEPS % "pass").replace("    print(epoch, step)", "    torch.save(model.state_dict(), path)"),
    ),
    SourceCase(
        "quiet when an epoch is one step",
        "for epoch in range(99):\n    criterion(model(x), y).backward()\n    optimizer.step()\n"
        "    torch.save(model, path)\n",
    ),
)
