"""avatar_splat does what its guide describes: its habits counted, its runs repeated, its errors read."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.workloads.projects import EXPERTS, WORKLOADS, Ended, counted, expert

PROJECT, EXPERT = WORKLOADS / "avatar_splat", EXPERTS / "avatar_splat"
STEPS = 12
EVALUATIONS = 2  # at half of the steps and at the end
PICTURES_MADE = 30  # of the hidden avatar, by the run that makes the data


def loaded(name: str, path: Path) -> ModuleType:
    """A script as a module of another name than every other project's train.py."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The project's train.py in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PROJECT))
        yield loaded("avatar_splat_train", PROJECT / "train.py")
        torch.use_deterministic_algorithms(False)


@dataclass
class Run:
    """A training run and what was seen of it."""

    out: Path
    losses: list[float]
    counts: dict[str, Any] = field(default_factory=dict)
    ended: Ended | None = None


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("avatar") / "data"


def flags(data: Path, out: Path, **more: object) -> list[str]:
    fixed: dict[str, object] = {"data": data, "out": out, "size": "tiny", "device": "cpu", "steps": STEPS}
    fixed |= {"eval-interval": STEPS // 2, "checkpoint-interval": STEPS // 2, "losses": out / "losses.json"} | more
    out.mkdir(parents=True, exist_ok=True)
    return ["--deterministic", *(str(part) for name, value in fixed.items() for part in (f"--{name}", value))]


@pytest.fixture(scope="module")
def before(data: Path) -> Run:
    """The project's own run, by path, with everything counted; it makes the data too."""
    out = data.parent / "before"
    counts = counted("avatar_splat", data.parent / "counts.json", *flags(data, out))
    return Run(out, json.loads((out / "losses.json").read_text()), counts)


@pytest.fixture(scope="module")
def again(script: ModuleType, before: Run, data: Path) -> Run:
    """The same run a second time, with loaders, networks and pictures counted; the viewer is paused."""
    from splat import evaluate, live

    out, seen, settings = data.parent / "again", Counter[str](), []
    loader, network, view = script.DataLoader, evaluate.PerceptualNet, live.LiveView.serve

    def built_loader(*arguments: Any, **keywords: Any) -> Any:
        settings.append(keywords)
        return loader(*arguments, **keywords)

    def built_network(*arguments: Any) -> Any:
        seen["networks of evaluations"] += 1
        return network(*arguments)

    def served(self: Any) -> None:
        seen["served"] += 1
        view(self)
        seen["shown"] = self.shown

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "DataLoader", built_loader)
        patch.setattr(evaluate, "DataLoader", built_loader)
        patch.setattr(evaluate, "PerceptualNet", built_network)
        patch.setattr(live.LiveView, "serve", served)
        assert script.main(flags(data, out, viewer="paused")) == 0
    return Run(out, json.loads((out / "losses.json").read_text()), {"seen": seen, "loaders": settings})


@pytest.fixture(scope="module")
def lossless(before: Run, data: Path) -> Run:
    out = data.parent / "lossless"
    ended = expert("avatar_splat", *flags(data, out, allow="lossless"))
    assert ended.code == 0, ended.err
    return Run(out, json.loads((out / "losses.json").read_text()), ended=ended)


def per_step(run: Run, what: str, *files: str) -> float:
    """How often a line of these files did this, per step."""
    counts: dict[str, int] = run.counts["lines"]
    names = [name for name in counts if name.startswith(f"{what} ") and name.split()[1].split(":")[0] in files]
    return sum(counts[name] for name in names) / int(run.counts["steps"])


def source_line(run: Run, what: str, text: str) -> int:
    """How often the lines of the project that contain this text did that."""
    total = 0
    for name, count in run.counts["lines"].items():
        kind, place = name.split()
        if kind == what and ":" in place:
            file, number = place.split(":")
            total += count if text in (PROJECT / file).read_text().splitlines()[int(number) - 1] else 0
    return total


def test_a_step_has_six_items_one_check_and_ten_masks(before: Run) -> None:
    assert before.counts["steps"] == STEPS
    assert source_line(before, "item", 'loss = parts["loss"].item()') == STEPS
    assert source_line(before, "item", "parts[name].item()") == 4 * STEPS
    assert source_line(before, "item", "(rendered.radii > 0).sum().item()") == STEPS
    assert source_line(before, "_local_scalar_dense", "torch.isfinite") == STEPS
    masks = per_step(before, "mask", "splat/densify.py", "splat/losses.py")
    assert masks == pytest.approx(10, abs=1)


def test_a_sample_goes_to_the_device_in_twelve_copies_of_its_tensors(before: Run) -> None:
    samples = STEPS + EVALUATIONS * 10
    assert (
        sum(n for name, n in before.counts["lines"].items() if name.startswith("to splat/dataset.py")) == 12 * samples
    )


def test_the_ssim_window_is_made_and_copied_in_each_call(before: Run) -> None:
    assert source_line(before, "to", "gaussian_window()") == STEPS + EVALUATIONS * 10


def test_the_loader_has_no_workers_and_evaluation_builds_its_own_loader_and_network_each_time(again: Run) -> None:
    settings = again.counts["loaders"]
    assert len(settings) == 1 + EVALUATIONS
    assert settings[0]["num_workers"] == 0
    assert all(keywords.get("num_workers", 0) == 0 for keywords in settings)
    assert again.counts["seen"]["networks of evaluations"] == EVALUATIONS


def test_scalars_are_logged_each_step_and_ten_pictures_per_evaluation(before: Run) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(before.out / "tensorboard"), size_guidance={"scalars": 0, "images": 0})
    events.Reload()
    for name in ("loss", "l1", "ssim", "perceptual", "psnr", "visible", "gaussians", "xyz_lr"):
        assert [event.step for event in events.Scalars(f"train/{name}")] == list(range(1, STEPS + 1))
    pictures = Counter(event.step for tag in events.Tags()["images"] for event in events.Images(tag))
    assert pictures == {STEPS // 2: 10, STEPS: 10}
    psnr = [event.value for event in events.Scalars("test/psnr")]
    assert psnr[-1] > psnr[0] > 5
    gaussians = [event.value for event in events.Scalars("train/gaussians")]
    assert gaussians[0] == 256 and gaussians[-1] > 256


def test_pinning_passes_over_a_sample_of_the_project_but_not_over_the_experts(
    script: ModuleType, data: Path, before: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from splat.dataset import AvatarFrames

    monkeypatch.syspath_prepend(str(EXPERT))
    from torch.utils.data._utils.pin_memory import pin_memory

    from splat_expert.loading import PackedFrames

    frames = AvatarFrames(data / "tiny", "train", 32)
    sample = frames[0]
    assert pin_memory(sample) is sample
    assert not hasattr(sample, "pin_memory")
    packed = PackedFrames(frames)[0]
    assert packed.planes.dtype == torch.uint8 and hasattr(packed, "pin_memory")


def test_two_deterministic_runs_have_the_same_losses(before: Run, again: Run) -> None:
    assert len(before.losses) == STEPS
    assert before.losses == again.losses


def test_the_paused_viewer_is_served_and_shows_nothing(again: Run) -> None:
    assert again.counts["seen"]["served"] == STEPS
    assert again.counts["seen"]["shown"] == 0


def test_the_viewer_gets_a_picture_each_step(before: Run) -> None:
    # The first step hears only that the window is there and not paused.
    assert source_line(before, "cpu", "permute(1, 2, 0).contiguous().cpu()") == STEPS - 1 + PICTURES_MADE


def test_receive_waits_for_the_viewer_unless_it_is_paused(script: ModuleType) -> None:
    from splat.viewer import ViewerServer, _receive_block, _send_block

    server = ViewerServer(0)
    with socket.create_connection(("127.0.0.1", server.port)) as window:
        deadline = time.monotonic() + 5
        while not server.connected and time.monotonic() < deadline:
            server.try_connect()
        got: list[Any] = []
        waiting = threading.Thread(target=lambda: got.append(server.receive()))
        waiting.start()
        waiting.join(timeout=0.1)
        assert waiting.is_alive()
        _send_block(window, b'{"camera": {}, "paused": true}')
        waiting.join(timeout=5)
        assert got == [{"camera": {}, "paused": True}]
        assert server.receive() is None and server.connected
        server.send(torch.ones(3, 4, 4))
        assert _receive_block(window) == b"\xff" * 48
        _send_block(window, b'{"paused": false}')
        while (message := server.receive()) is None and time.monotonic() < deadline:
            pass
        assert message == {"paused": False} and not server.paused
    assert server.receive() is None and not server.connected
    server.close()


def test_a_resumed_run_ends_as_the_unbroken_one(script: ModuleType, before: Run, data: Path) -> None:
    out = data.parent / "resumed"
    arguments = flags(data, out, resume=before.out / "step_000006.pt", viewer="off")

    assert script.main(arguments) == 0

    assert json.loads((out / "losses.json").read_text()) == before.losses[6:]


@pytest.mark.variant  # the expert's form is a benchmark's
def test_the_experts_lossless_form_has_the_same_losses_and_metrics(before: Run, lossless: Run) -> None:
    assert lossless.losses == before.losses
    ours, theirs = (torch.load(run.out / "last.pt", weights_only=True) for run in (before, lossless))
    for name, values in ours["parameters"].items():
        assert torch.equal(values, theirs["parameters"][name]), name
    assert lossless.ended is not None
    assert lossless.ended.final["steps"] == STEPS


@pytest.mark.variant  # the expert's form is a benchmark's
def test_the_expert_renders_four_cameras_a_step_and_resumes_the_projects_checkpoint(before: Run, data: Path) -> None:
    out = data.parent / "training"
    ended = expert("avatar_splat", *flags(data, out, resume=before.out / "step_000006.pt", steps=10))

    assert ended.code == 0, ended.err
    assert torch.load(out / "last.pt", weights_only=True)["samples"] == 6 + 4 * 4
    assert len(json.loads((out / "losses.json").read_text())) == 4
    assert ended.final["psnr"] > 5


def test_a_damaged_picture_ends_the_run_with_one_line_also_from_a_worker(
    script: ModuleType, before: Run, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    for picture in (copy / "tiny" / "images").glob("train_*"):
        picture.write_bytes(picture.read_bytes()[:200])

    code = script.main(flags(copy, tmp_path / "out", viewer="off"))
    ended = expert("avatar_splat", *flags(copy, tmp_path / "expert"))

    assert (code, ended.code) == (2, 2)
    for said in (capsys.readouterr().err, ended.err):
        assert said.count("\n") == 1
        assert said.startswith("train.py: error: data file '") and "remove the folder" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--steps", "0"], "--steps must be at least 1, got 0"),
        (["--steps", "many"], "'many'"),
        (["--size", "huge"], "'huge'"),
        (["--cameras-per-step", "0"], "--cameras-per-step must be at least 1, got 0"),
        (["--lr-scale", "nan"], "--lr-scale must be more than 0, got nan"),
        (["--port", "70000"], "between 0 and 65535, got 70000"),
        (["--turbo"], "--turbo"),
        (["--resume", "nowhere.pt"], "'nowhere.pt' does not exist"),
        (["--resume", "foreign.pt"], "'foreign.pt' is no checkpoint of avatar_splat"),
        (["--resume", "text.pt"], "'text.pt' is no checkpoint"),
        (["--resume", "full.pt"], "was saved with --size full, this run has --size tiny"),
        (["--resume", "done.pt", "--steps", str(STEPS)], f"is at step {STEPS}: --steps {STEPS} must be more"),
        (["--losses", "/nowhere/losses.json", "--steps", "1"], "/nowhere/losses.json"),
        (["--backend", "gsplat"], "needs the package gsplat"),
        (["--data", "text.pt"], "cannot make data in 'text.pt'"),
    ],
)
def test_errors_are_one_line_and_exit_2(
    script: ModuleType,
    before: Run,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(before.out / "last.pt", "done.pt")
    torch.save({"model": {}}, "foreign.pt")
    torch.save({"kind": "avatar_splat", "size": "full"}, "full.pt")
    Path("text.pt").write_text("no checkpoint")

    try:
        code = script.main(["--data", str(data), "--size", "tiny", "--device", "cpu", *arguments])
    except SystemExit as ended:
        code = int(ended.code or 0)

    error = capsys.readouterr().err
    assert code == 2
    assert error.startswith("train.py: error: ") and error.count("\n") == 1 and said in error


def test_the_sizes_are_those_of_the_specification(script: ModuleType) -> None:
    from splat.config import PRESETS

    tiny, full = PRESETS["tiny"], PRESETS["full"]
    assert (tiny.gaussians, tiny.resolution, tiny.per_tile) == (256, 32, 32)
    assert (full.gaussians, full.resolution, full.per_tile) == (20_000, 512, 256)
    assert (full.frame_height, full.frame_width) == (802, 550)


def test_every_change_of_the_expert_has_a_class_and_a_place() -> None:
    changes = tomllib.loads((EXPERT / "changes.toml").read_text())["change"]

    assert {change["class"] for change in changes} == {"lossless", "numeric", "training"}
    for change in changes:
        file, name = change["where"].split(":")
        assert f"def {name}(" in (EXPERT / file).read_text(), change
        assert change["what"] and change["replaces"]


@pytest.mark.timing
def test_a_full_size_sample_costs_tens_of_milliseconds(script: ModuleType, tmp_path: Path) -> None:
    from splat.config import PRESETS
    from splat.dataset import AvatarFrames
    from splat.make_data import _frames

    frame = _frames(PRESETS["full"])[0]
    (tmp_path / "images").mkdir()
    (tmp_path / "frames.json").write_text(json.dumps([frame]))
    y, x = np.mgrid[0:802, 0:550] / 100
    planes = [np.sin(x) * np.cos(y), np.sin(x + y), np.cos(x - y), ((x - 2.7) ** 2 + (y - 4) ** 2 < 6) * 2 - 1]
    grain = np.random.default_rng(0).normal(0, 1.5, (802, 550, 1)) * (planes[3][..., None] > 0)
    picture = (np.stack(planes, axis=2) * 120 + 127 + grain).clip(0, 255).astype(np.uint8)
    Image.fromarray(picture).save(tmp_path / frame["file"])
    dataset = AvatarFrames(tmp_path, "train", 512)

    costs_ms = []
    for _ in range(5):
        start = time.process_time()
        dataset[0]
        costs_ms.append((time.process_time() - start) * 1e3)

    assert 12 < min(costs_ms) < 150


def teardown_module() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "splat_expert"]:
        del sys.modules[name]
