"""`flatout demo`: a bundled training project, watched as any script would be, and what to try next."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap

from flatout.app.run import RunOptions, Stage, run_command
from flatout.errors import FlatoutError
from flatout.launch.terminal import detect_terminal, write_stderr
from flatout.report.live import StepsBar
from flatout.report.text import fold_command

LIMIT_S = 60.0
_TERMINATED = 128 + 15
_FIX_BUDGET_S, _ENOUGH_STEPS = 120.0, 1_000_000
FOLDER = Path(__file__).resolve().parents[1] / "workloads"
SIZES = ("tiny", "full")


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user chose; `size` None is tiny without a GPU and full with one."""

    name: str
    size: str | None
    data: Path | None
    limit_s: float = LIMIT_S
    # Whether it goes on to make it faster.
    fix: bool = False


def tell_stories() -> str:
    """Every workload with its story, two lines each."""
    stories = [(workload.name, *workload.story()) for workload in WORKLOADS]
    return "\n".join(f" {name}: {title}\n   {trains}\n   {idle}\n" for name, title, trains, idle in stories)


def run_demo(choice: Choice, options: RunOptions) -> int:
    """Make the workload's data, watch it train, show the verdict and what comes next."""
    workload = find_workload(choice.name)
    size = choice.size or default_size()
    if size not in SIZES:
        raise FlatoutError(f"--size must be tiny or full, got {size!r}")
    missing = [name for name in workload.needs if importlib.util.find_spec(name) is None]
    if missing:
        raise FlatoutError(f"{workload.name} needs {' and '.join(missing)}: pip install 'flatout[demo]'")
    screen = detect_terminal(os.environ)
    data = (choice.data or cache_folder(os.environ)) / workload.name
    if not options.quiet:
        _introduce(workload, screen.width)
        write_stderr(f" Its data ({size}) is in {data}\n")
    with tempfile.TemporaryDirectory(prefix="flatout-demo-") as scratch:
        shared = ["--size", size, "--data", str(data), "--out", f"{scratch}/out"]
        arguments = [*shared, "--steps", str(workload.steps[size])]
        _make_data(workload, arguments)
        is_shown = screen.fd is not None and not options.quiet
        view = StepsBar(workload.steps[size], screen.width, screen.color) if is_shown else None
        named = replace(options, name=options.name or workload.name)
        log = Path(scratch) / "printed.txt"
        with log.open("wb") as printed:
            code = _run_watched(workload, arguments, named, Stage(printed.fileno(), view, choice.limit_s), log)
        if choice.fix and not options.quiet:
            _run_fix(workload, [*shared, "--steps", str(_ENOUGH_STEPS)], data)
    if not options.quiet:
        _go_on(workload, size, data, screen.width)
    return code


def default_size() -> str:
    """full with a GPU that torch can use, tiny without. Asked of another process: CUDA is not ours to initialise."""
    question = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    answer = subprocess.run([sys.executable, "-c", question], capture_output=True, check=False)
    return "full" if answer.returncode == 0 else "tiny"


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where made data is kept from one demo to the next."""
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "flatout" / "workloads"


def _introduce(workload: Workload, width: int) -> None:
    title, trains, idle = workload.story()
    lines = [line for words in (f"{workload.name}: {title}", trains, idle) for line in wrap(words, width - 2)]
    write_stderr("\n" + "".join(f" {line}\n" for line in lines) + "\n")


def _make_data(workload: Workload, arguments: list[str]) -> None:
    command = [sys.executable, str(workload.script), *arguments, "--make-data-only"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise _failure(workload, made.returncode, made.stdout + made.stderr)


def _run_watched(workload: Workload, arguments: list[str], options: RunOptions, stage: Stage, log: Path) -> int:
    code = run_command([str(workload.script), *arguments], options, stage)
    if code == _TERMINATED:
        write_stderr(f" Stopped after {stage.limit_s:.0f} s: a demo takes no longer.\n")
        return 0
    if code:
        raise _failure(workload, code, log.read_text(errors="replace"))
    return code


def _run_fix(workload: Workload, arguments: list[str], data: Path) -> None:
    """Before → after: the same script, made faster from outside."""
    from flatout.app.fix import FixOptions, run_fix

    write_stderr(f"\n Now flatout fix {workload.name}: the same script, unchanged, made faster from outside\n")
    command = (str(workload.script), *arguments)
    run_fix(FixOptions(command, allow=("numeric",), budget_s=_FIX_BUDGET_S, profile=data / "flatout.toml", fresh=True))


def _go_on(workload: Workload, size: str, data: Path, width: int) -> None:
    """What comes after the verdict."""
    script = workload.script
    shown = os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script)
    commands = [
        (f"flatout run {shlex.quote(shown)} --size {size} --data {shlex.quote(str(data))} {flags}", why)
        for flags, why in workload.tries
    ]
    commands.append(("flatout fix train.py", "your own training, unchanged"))
    write_stderr("\n Try next\n")
    for words, why in commands:
        write_stderr(f"   {fold_command(words, width - 3, '     ')}\n     {why}\n")


def _failure(workload: Workload, code: int, printed: str) -> FlatoutError:
    tail = "\n".join(printed.rstrip().splitlines()[-8:])
    return FlatoutError(f"{workload.name} failed with exit code {code}; the end of what it printed:\n{tail}")


# The bundled training projects: where they are, what their story is, and what to try on them.


@dataclass(frozen=True, slots=True)
class Workload:
    """A project with a `train.py`. `steps` by size fill about half a minute; `tries` are flags worth a second run."""

    name: str
    needs: tuple[str, ...]
    steps: dict[str, int]
    tries: tuple[tuple[str, str], ...] = ()

    @property
    def script(self) -> Path:
        return FOLDER / self.name / "train.py"

    def story(self) -> tuple[str, str, str]:
        """Its title, what it trains, and what keeps the GPU idle: the first lines of its README."""
        text = (FOLDER / self.name / "README.md").read_text(encoding="utf-8")
        title, trains, idle = [line.strip() for line in text.splitlines() if line.strip()][:3]
        return title.lstrip("# ").partition(": ")[2], trains, idle


WORKLOADS = (
    Workload(
        "gray_cnn",
        needs=("PIL",),
        steps={"tiny": 120, "full": 250},
        tries=(("--num-workers 2", "let two processes prepare the batches"),),
    ),
    Workload("heatmap_npy", needs=("yaml",), steps={"tiny": 30, "full": 20}),
    Workload("bev_seg", needs=("PIL",), steps={"tiny": 40, "full": 250}),
    Workload("spike_deblur", needs=("PIL", "yaml", "psutil"), steps={"tiny": 30, "full": 60}),
    Workload(
        "avatar_splat",
        needs=("PIL", "tensorboard"),
        steps={"tiny": 40, "full": 250},
        tries=(("--viewer paused", "do not wait for the viewer"),),
    ),
)


def find_workload(name: str) -> Workload:
    """The workload of this name."""
    for workload in WORKLOADS:
        if workload.name == name.replace("-", "_"):
            return workload
    known = ", ".join(workload.name for workload in WORKLOADS)
    raise FlatoutError(f"no workload is called {name!r}; there are {known}")
