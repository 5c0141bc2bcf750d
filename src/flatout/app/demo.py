"""`flatout demo`: a bundled training project, watched as any script would be, and what to try next."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap

from flatout.app.run import RunOptions, Stage, run_command
from flatout.errors import FlatoutError
from flatout.launch.terminal import detect_terminal, write_stderr
from flatout.report.live import StepsBar
from flatout.report.text import fold_command

LIMIT_S = 60.0
_SAY = {
    "data": " Its data ({size}) is in {folder}\n",
    "failed": "{name} failed with exit code {code}; the end of what it printed:\n{tail}",
    "missing": "{name} needs {missing}: pip install 'flatout[demo]'",
    "size": "--size must be tiny or full, got {size!r}",
    "next": "\n Try next\n",
    "fix": "\n Now flatout fix {name}: the same script, unchanged, made faster from outside\n",
    "own": "your own training, unchanged",
    "stopped": " Stopped after {limit:.0f} s: a demo takes no longer.\n",
}
_TERMINATED = 128 + 15
_FIX_BUDGET_S, _ENOUGH_STEPS = 120.0, 1_000_000
FOLDER = Path(__file__).resolve().parents[1] / "workloads"
SIZES = ("tiny", "full")
DEFAULT = "gray_cnn"


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
    blocks = []
    for workload in WORKLOADS:
        title, trains, idle = workload.story()
        blocks.append(f" {workload.name}: {title}\n   {trains}\n   {idle}\n")
    return "\n".join(blocks)


def run_demo(choice: Choice, options: RunOptions) -> int:
    """Make the workload's data, watch it train, show the verdict and what comes next."""
    workload = find_workload(choice.name)
    size = choice.size or default_size()
    if size not in SIZES:
        raise FlatoutError(_SAY["size"].format(size=size))
    _check_needs(workload)
    screen = detect_terminal(os.environ)
    data = (choice.data or cache_folder(os.environ)) / workload.name
    if not options.quiet:
        _introduce(workload, screen.width)
        write_stderr(_SAY["data"].format(size=size, folder=data))
    with tempfile.TemporaryDirectory(prefix="flatout-demo-") as scratch:
        shared = ["--size", size, "--data", str(data), "--out", f"{scratch}/out"]
        arguments = [*shared, "--steps", str(workload.steps[size])]
        _make_data(workload, arguments)
        view = None
        if screen.fd is not None and not options.quiet:
            view = StepsBar(workload.steps[size], screen.width, screen.color)
        named = replace(options, name=options.name or workload.name)
        log = Path(scratch) / "printed.txt"
        with _open_log(log) as log_fd:
            stage = Stage(log_fd, view, choice.limit_s)
            code = _run_watched(workload, arguments, named, stage, log)
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


def _check_needs(workload: Workload) -> None:
    missing = [name for name in workload.needs if importlib.util.find_spec(name) is None]
    if missing:
        raise FlatoutError(_SAY["missing"].format(name=workload.name, missing=" and ".join(missing)))


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
        write_stderr(_SAY["stopped"].format(limit=stage.limit_s))
        return 0
    if code:
        raise _failure(workload, code, log.read_text(errors="replace"))
    return code


def _run_fix(workload: Workload, arguments: list[str], data: Path) -> None:
    """Before → after: the same script, made faster from outside."""
    from flatout.app.fix import FixOptions, run_fix

    write_stderr(_SAY["fix"].format(name=workload.name))
    command = (str(workload.script), *arguments)
    run_fix(FixOptions(command, allow=("numeric",), budget_s=_FIX_BUDGET_S, profile=data / "flatout.toml", fresh=True))


def _go_on(workload: Workload, size: str, data: Path, width: int) -> None:
    """What comes after the verdict."""
    place = workload.script
    shown = os.path.relpath(place) if place.is_relative_to(Path.cwd()) else str(place)
    commands = [
        (f"flatout run {shlex.quote(shown)} --size {size} --data {shlex.quote(str(data))} {flags}", why)
        for flags, why in workload.tries
    ]
    commands.append(("flatout fix train.py", _SAY["own"]))
    write_stderr(_SAY["next"])
    for words, why in commands:
        write_stderr(f"   {fold_command(words, width - 3, '     ')}\n     {why}\n")


@contextmanager
def _open_log(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def _failure(workload: Workload, code: int, printed: str) -> FlatoutError:
    tail = "\n".join(printed.rstrip().splitlines()[-8:])
    return FlatoutError(_SAY["failed"].format(name=workload.name, code=code, tail=tail))


# The bundled training projects: where they are, what their story is, and what to try on them.


@dataclass(frozen=True, slots=True)
class Workload:
    """A project with a `train.py`. `steps` by size fill about half a minute; `tries` are flags worth a second run."""

    name: str
    needs: tuple[str, ...]
    steps: dict[str, int]
    tries: tuple[tuple[str, str], ...]

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
    Workload(
        "heatmap_npy",
        needs=("yaml",),
        steps={"tiny": 30, "full": 20},
        tries=(),
    ),
    Workload(
        "bev_seg",
        needs=("PIL",),
        steps={"tiny": 40, "full": 250},
        tries=(),
    ),
    Workload(
        "spike_deblur",
        needs=("PIL", "yaml", "psutil"),
        steps={"tiny": 30, "full": 60},
        tries=(),
    ),
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
