"""heatmap_npy holds what its guide complains of, and the expert's form is the same training."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import math
import os
import shutil
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from tests.workloads.projects import EXPERTS, WORKLOADS, Ended, counted, expert, train

NAME = "heatmap_npy"
PROJECT, EXPERT = WORKLOADS / NAME, EXPERTS / NAME
STEPS = 10
PER_FILE = 8


def _load(script: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, script)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def paths() -> Iterator[None]:
    """The project's modules can be imported, and what a run sets for its whole process is put back."""
    path, environ = list(sys.path), dict(os.environ)
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    sys.path[:0] = [str(PROJECT), str(EXPERT)]
    yield
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(environ)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def script(paths: None) -> ModuleType:
    return _load(PROJECT / "train.py", "heatmap_npy_train")


@pytest.fixture(scope="module")
def expert_script(paths: None) -> ModuleType:
    return _load(EXPERT / "train.py", "heatmap_npy_expert")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(NAME)


def _flags(place: Path, name: str, steps: int) -> list[str | Path]:
    data, out, losses = place / "data", place / name, place / f"{name}.json"
    shared: list[str | Path] = ["--size", "tiny", "--device", "cpu", "--deterministic", "--data", data]
    return [*shared, "--steps", str(steps), "--out", out, "--losses", losses]


def _losses(place: Path, name: str) -> list[float]:
    loaded: list[float] = json.loads((place / f"{name}.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def whole(place: Path) -> Ended:
    """The first run makes the data."""
    ended = train(NAME, *_flags(place, "whole", STEPS))
    assert ended.code == 0, ended.err
    return ended


@pytest.fixture(scope="module")
def tally(place: Path, whole: Ended) -> dict[str, Any]:
    return counted(NAME, place / "tally.json", *_flags(place, "tally", 3))


@pytest.fixture(scope="module")
def full(paths: None) -> Any:
    from slider.config import CONFIGS, load_config

    return load_config(CONFIGS / "full.yaml", [])


def _at(tally: dict[str, Any], kind: str, text: str, function: str) -> int:
    """How often lines of the engine's function that hold the text did it."""
    source = (PROJECT / "slider" / "engine.py").read_text()
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    found = next(node for node in nodes if node.name == function)
    lines = range(found.lineno, (found.end_lineno or 0) + 1)
    wanted = [number for number in lines if text in source.splitlines()[number - 1]]
    return sum(tally["lines"].get(f"{kind} slider/engine.py:{number}", 0) for number in wanted)


# What it contains


def test_a_file_of_full_size_is_a_batch_with_its_targets(full: Any) -> None:
    from slider.generate import array_shapes

    shapes = array_shapes(full.data)
    mib = {name: math.prod(shape) * 4 / 2**20 for name, shape in shapes.items()}
    assert shapes["images"] == (256, 2, 256, 512) and full.data.train_files == 40
    assert mib["images"] == 256 and mib["heatmaps"] + mib["offsets"] == 48


def test_the_network_is_small_and_depthwise(full: Any) -> None:
    from slider.model import SliderNet

    with torch.device("meta"):
        model = SliderNet(full.model).eval()
        with FlopCounterMode(display=False) as flops:
            heatmaps, offsets = model(torch.empty(1, 2, 256, 512))

    assert sum(p.numel() for p in model.parameters()) == pytest.approx(3.5e6, rel=0.03)
    assert flops.get_total_flops() == pytest.approx(0.45e9, rel=0.03)
    assert heatmaps.shape == (1, 2, 64, 128) and offsets.shape == (1, 4, 64, 128)
    convolutions = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d)]
    assert sum(m.groups > 1 for m in convolutions) > 20


class _Launches(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(func.overloadpacket).removeprefix("aten.")] += 1
        return func(*args, **(kwargs or {}))


def test_targets_are_recomputed_in_loops_though_the_files_hold_the_same_bits(full: Any, tmp_path: Path) -> None:
    from slider.engine import TrainingEngine
    from slider.generate import draw_captchas, draw_targets
    from slider.model import SliderNet

    data = dataclasses.replace(full.data, batch_size=2)
    _, points = draw_captchas(np.random.default_rng(3), data)
    stored = draw_targets(points, data)
    engine = TrainingEngine(dataclasses.replace(full, data=data), SliderNet(full.model), torch.device("cpu"), tmp_path)
    with _Launches() as launches:
        made = engine._generate_targets(torch.from_numpy(points), stored[0].shape, stored[1].shape)

    for values, expected in zip(made, stored, strict=True):
        assert torch.equal(values, torch.from_numpy(expected))
    waits = launches.counts["_local_scalar_dense"]
    tiny = launches.counts.total() - waits - launches.counts["select"]
    assert waits == 4 * 2
    assert 779_000 <= tiny / 2 * 256 <= 790_000


def test_targets_are_recomputed_every_step(tally: dict[str, Any]) -> None:
    points = 2 * PER_FILE * tally["steps"]
    assert tally["steps"] == 3
    assert _at(tally, "_local_scalar_dense", "int(px), int(py)", "_generate_targets") == 2 * points
    # One for every cell of a window of 5 × 5.
    assert tally["operations"]["clamp"] >= 25 * points


def test_a_step_reads_five_figures_and_asks_for_points(tally: dict[str, Any]) -> None:
    asked = [count for name, count in tally["lines"].items() if name.startswith("_local_scalar_dense slider/losses.py")]
    assert _at(tally, "item", ".item()", "train_step") == 5 * tally["steps"]
    assert asked == [tally["steps"]]


def test_copies_are_four_a_step_and_blocking(tally: dict[str, Any]) -> None:
    assert _at(tally, "to", ".to(self.device)", "train_step") == 4 * tally["steps"]
    assert "non_blocking" not in (PROJECT / "slider" / "engine.py").read_text()


def test_four_loaders_ignore_the_configuration(script: ModuleType, full: Any, tmp_path: Path) -> None:
    loaders = [
        script.create_train_loader(tmp_path, full.data, 0)[0],
        script.create_val_loader(tmp_path, full.data),
        script.create_test_loader(tmp_path, full.data),
        script.create_calibration_loader(tmp_path, full.data),
    ]
    assert full.loader.num_workers == 24 and full.loader.prefetch_factor == 4
    for loader in loaders:
        assert loader.num_workers == 2 and loader.batch_size == 1
        assert loader.prefetch_factor == 2 and not loader.persistent_workers
    calls = [
        {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        for node in ast.walk(ast.parse((PROJECT / "slider" / "loaders.py").read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "DataLoader"
    ]
    assert [(call["num_workers"], call["batch_size"]) for call in calls] == [("2", "1")] * 4


def test_cudnn_is_forced_deterministic_against_the_configuration(script: ModuleType, full: Any) -> None:
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = False, True
    script.set_seed(0)
    assert full.train.cudnn_benchmark
    assert torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark


def test_no_accumulation_tf32_or_compile(whole: Ended) -> None:
    sources = [path.read_text() for path in PROJECT.rglob("*.py")]
    for word in ("accumulation", "tf32", "set_float32_matmul_precision", "compile(", "CUDAGraph"):
        assert not any(word in source for source in sources), word
    assert whole.final["samples"] == STEPS * PER_FILE


# What it must do


def test_the_run_ends_with_its_figures_and_learns(place: Path, whole: Ended) -> None:
    losses = _losses(place, "whole")
    assert len(losses) == whole.final["steps"] == STEPS
    assert whole.final["loss"] == pytest.approx(losses[-1], abs=1e-6)
    assert losses[-1] < losses[0] / 2
    assert 0 < whole.final["error_px"] < 32


@pytest.mark.variant  # the expert's form is a benchmark's
def test_expert_without_loss_is_the_same_training_bit_for_bit(place: Path, whole: Ended) -> None:
    ended = expert(NAME, *_flags(place, "expert", STEPS), "--allow", "lossless")
    assert ended.code == 0, ended.err
    assert _losses(place, "expert") == _losses(place, "whole")
    assert ended.final == whole.final


def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(
    place: Path, whole: Ended, script: ModuleType, expert_script: ModuleType
) -> None:
    """Broken off inside the first epoch, and taken up by either script."""
    flags = [list(map(str, _flags(place, name, STEPS))) for name in ("unbroken", "resumed", "taken_up")]
    assert script.main(flags[0]) == 0
    assert script.main(list(map(str, _flags(place, "broken", 3)))) == 0
    resume = ["--resume", str(place / "broken" / "last.pt")]
    assert script.main([*flags[1], *resume]) == 0
    assert expert_script.main([*flags[2], *resume, "--allow", "lossless"]) == 0

    unbroken = _losses(place, "unbroken")
    assert _losses(place, "broken") == unbroken[:3]
    assert _losses(place, "resumed") == unbroken[3:]
    assert _losses(place, "taken_up") == unbroken[3:]


def test_the_script_takes_up_an_expert_run(
    place: Path, whole: Ended, script: ModuleType, expert_script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = list(map(str, _flags(place, "grown", 2)))
    # With four samples a file the expert may put two of eight files into a step.
    few = ["--per-file", "4", "--files", "8"]
    assert expert_script.main([*flags, *few]) == 0
    assert Ended(0, capsys.readouterr().out, "").final["samples"] == 2 * 2 * 4
    flags = list(map(str, _flags(place, "shrunk", 3)))
    assert script.main([*flags, *few, "--resume", str(place / "grown" / "last.pt")]) == 0
    assert len(_losses(place, "shrunk")) == 1


@pytest.fixture(scope="module")
def broken_data(place: Path, whole: Ended) -> Path:
    """Two copies of the data: one with a file missing, one with a file cut off."""
    root = place / "broken_data"
    for name in ("missing", "corrupt"):
        shutil.copytree(place / "data", root / name)
    (root / "missing" / "tiny-4x8" / "test" / "batch_000_points.npy").unlink()
    cut = root / "corrupt" / "tiny-4x8" / "train" / "batch_003_heatmaps.npy"
    cut.write_bytes(cut.read_bytes()[:-4])
    (root / "foreign.pt").write_bytes(b"nothing of ours")
    (root / "bad.yaml").write_text("size: [")
    return root


WRONG = {
    "--stepz 3": "unrecognized arguments: --stepz 3",
    "--steps 0": "argument --steps: must be a whole number of at least 1, got '0'",
    "--size huge": "'huge'",
    "--options train.lr": "--options takes section.key=value, such as train.lr=0.001, got 'train.lr'",
    "--options train.speed=9": "unknown key 'train.speed'",
    "--options train.lr=fast": "train.lr must be a number above 0, got 'fast'",
    "--options model.blocks=3": "model.blocks must be a list of counts, got 3",
    "--config ROOT/none.yaml": "none.yaml': No such file or directory; pass --config FILE",
    "--config ROOT/bad.yaml": "bad.yaml' is not YAML",
    "--data ROOT/missing": "batch_000_points.npy' is missing; delete",
    "--data ROOT/corrupt": "batch_003_heatmaps.npy' is corrupt; delete",
    "--options data.radius=1": "was made with other settings; delete",
    "--resume ROOT/none.pt": "none.pt' does not exist; pass the last.pt",
    "--resume ROOT/foreign.pt": "foreign.pt' is no checkpoint of this project",
    "--resume ROOT/../whole/last.pt --size full": "is of size 'tiny'; pass --size tiny",
    "--resume ROOT/../whole/last.pt --options model.width=4": "is of another network",
    "--resume ROOT/../whole/last.pt": f"is at step {STEPS} already; pass a larger --steps",
    "--losses ROOT/none/losses.json": "is not a file in an existing folder",
    "--out ROOT/foreign.pt": "cannot use --out",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_error_is_one_line(
    wrong: str, script: ModuleType, place: Path, broken_data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = [*map(str, _flags(place, "wrong", 4)), *wrong.replace("ROOT", str(broken_data)).split()]
    assert script.main(flags) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1 and error.startswith("train.py: error: "), error
    assert WRONG[wrong] in error


def test_the_expert_says_the_same_of_a_corrupt_file(
    expert_script: ModuleType, place: Path, broken_data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = [*map(str, _flags(place, "wrong", 4)), "--data", str(broken_data / "corrupt")]
    assert expert_script.main(flags) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1 and "batch_003_heatmaps.npy' is corrupt; delete" in error, error


def test_data_is_the_same_however_many_processes_make_it(
    place: Path, whole: Ended, script: ModuleType, tmp_path: Path
) -> None:
    flags = [*map(str, _flags(place, "again", 1)), "--data", str(tmp_path), "--make-data-only", "--make-workers", "1"]
    assert script.main(flags) == 0
    first, second = place / "data" / "tiny-4x8", tmp_path / "tiny-4x8"
    names = sorted(path.relative_to(first) for path in first.rglob("*.*"))
    assert len(names) == 6 * 4 + 1
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
    assert not (place / "again").exists()


def test_the_loss_without_a_wait_is_the_same_with_and_without_points(paths: None) -> None:
    from slider.losses import heatmap_loss
    from slider_expert.steps import losses_without_wait

    logits, offsets = torch.randn(2, 2, 8, 16), torch.randn(2, 4, 8, 16)
    for target in (torch.zeros(2, 2, 8, 16), torch.eye(16)[None, None, :8].expand(2, 2, 8, 16)):
        arguments = logits, offsets, target, torch.zeros(2, 4, 8, 16), 1.0
        for plain, quick in zip(heatmap_loss(*arguments), losses_without_wait(*arguments), strict=True):
            assert torch.equal(plain, quick)


# What the expert changes


def test_every_change_is_classed_and_found() -> None:
    changes = tomllib.loads((EXPERT / "changes.toml").read_text())["change"]
    for change in changes:
        assert set(change) == {"what", "class", "where", "replaces"}
        file, name = change["where"].split(":")
        tree = ast.parse((EXPERT / file).read_text())
        names = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        assert name in names, change["where"]
    assert {change["class"] for change in changes} == {"lossless", "numeric", "training"}


def test_the_readme_opens_with_its_story() -> None:
    title, *story, blank = (PROJECT / "README.md").read_text().splitlines()[:4]
    assert title.startswith(f"# {NAME}: ") and not blank
    assert all(0 < len(line) <= 110 for line in story)
