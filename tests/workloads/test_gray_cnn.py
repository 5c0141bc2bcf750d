"""gray_cnn: the habits of its guide are all there, it gives the same numbers twice, and it says what is wrong."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import statistics
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.workloads.projects import EXPERTS, WORKLOADS, Ended, counted, expert

NAME = "gray_cnn"
STEPS = 20  # two epochs of eight steps, and half of one
EVALUATIONS = 3


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(NAME)


@pytest.fixture(scope="module")
def flags(here: Path) -> Callable[..., list[str]]:
    """The flags of a small run; its results go to a folder of that name."""

    def make(name: str, *more: str, steps: int = STEPS) -> list[str]:
        common = ["--data", here / "data", "--out", here / name, "--losses", here / f"{name}.json", "--steps", steps]
        return [str(flag) for flag in common] + ["--size", "tiny", "--device", "cpu", "--deterministic", *more]

    return make


@pytest.fixture(scope="module")
def project() -> Iterator[Callable[[str], ModuleType]]:
    """Modules of the project (`graycnn.…`) and of the expert (`graycnn_expert.…`)."""
    folders = [str(WORKLOADS / NAME), str(EXPERTS / NAME)]
    path = sys.path.copy()
    sys.path[:0] = folders
    yield importlib.import_module
    sys.path[:] = path


def script() -> ModuleType:
    """The training script, loaded by path as it is run."""
    spec = importlib.util.spec_from_file_location("gray_cnn_train", WORKLOADS / NAME / "train.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def main(project: Callable[[str], ModuleType]) -> Iterator[Callable[[list[str]], int]]:
    """The script's main(), in this process."""
    import torch

    yield script().main
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic = False


@pytest.fixture(scope="module")
def counts(here: Path, flags: Callable[..., list[str]]) -> dict[str, Any]:
    """What a first run of the project does; it makes the data too."""
    return counted(NAME, here / "counts.json", *flags("before"))


@pytest.fixture(scope="module")
def again(counts: dict[str, Any], main: Callable[[list[str]], int], flags: Callable[..., list[str]]) -> Ended:
    """The same run in another process, loading in others."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(flags("again", "--num-workers", "2"))
    return Ended(code, out.getvalue(), "")


@pytest.fixture(scope="module")
def by_expert(counts: dict[str, Any], flags: Callable[..., list[str]]) -> Ended:
    return expert(NAME, *flags("expert", "--allow", "lossless"))


@pytest.fixture(scope="module")
def trainer(counts: dict[str, Any], project: Callable[[str], ModuleType], flags: Callable[..., list[str]]) -> Any:
    """A fresh trainer with the project's defaults."""
    options = project("graycnn.options")
    opt = options.parse(options.make_parser(), flags("trainer"))
    training, validation = project("graycnn.images").open_images(opt.data, opt.size, 1)
    return project("graycnn.trainer").Trainer(opt, training, validation)


def calls_by_text(counts: dict[str, Any], call: str) -> dict[str, int]:
    """The project's lines that made this call, and how often."""
    made: dict[str, int] = {}
    for key, count in counts["lines"].items():
        name, _, place = key.partition(" ")
        if name == call:
            file, _, line = place.rpartition(":")
            made[f"{line} " + (WORKLOADS / NAME / file).read_text().splitlines()[int(line) - 1]] = count
    return made


def losses(here: Path, name: str) -> list[float]:
    loaded: list[float] = json.loads((here / f"{name}.json").read_text())
    return loaded


# What the guide found.


def test_both_loaders_work_in_the_main_process_with_a_batch_of_64(trainer: Any) -> None:
    for loader in (trainer.train_loader, trainer.val_loader):
        assert (loader.num_workers, loader.batch_size) == (0, 64)
        assert not loader.pin_memory and not loader.persistent_workers and loader.prefetch_factor is None


def test_a_step_copies_images_and_labels_and_asks_for_no_number(counts: dict[str, Any]) -> None:
    copies = [count for text, count in calls_by_text(counts, "to").items() if ".to(self.device)" in text]
    asked = calls_by_text(counts, "item")

    assert counts["steps"] == STEPS
    assert sorted(copies) == [EVALUATIONS, STEPS, STEPS]
    # One mean loss an epoch is printed. PyTorch's loader and optimizer ask for numbers too, but of host tensors.
    theirs = ("in self.train_loader", "in self.val_loader", "optimizer.step()")
    assert [count for text, count in asked.items() if not any(part in text for part in theirs)] == [EVALUATIONS]


def test_every_batch_of_every_evaluation_is_brought_to_the_host(
    counts: dict[str, Any], trainer: Any, here: Path
) -> None:
    batches = EVALUATIONS * len(trainer.val_loader)

    assert [count for line, count in counts["lines"].items() if line.startswith("cpu ")] == [batches]
    # Logits and labels.
    assert sum(count for line, count in counts["lines"].items() if line.startswith("numpy ")) == 2 * batches


def test_every_epoch_ends_with_an_evaluation_and_a_checkpoint(again: Ended, trainer: Any) -> None:
    assert (trainer.opt.eval_interval, trainer.opt.checkpoint_interval) == (1, 1)
    assert sum("accuracy" in line for line in again.out.splitlines() if line.startswith("epoch")) == EVALUATIONS


def test_intervals_thin_them_out_but_keep_the_last(
    counts: dict[str, Any],
    main: Callable[[list[str]], int],
    flags: Callable[..., list[str]],
    project: Callable[[str], ModuleType],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint = project("graycnn.checkpoint")
    saved: list[tuple[str, int]] = []
    monkeypatch.setattr(checkpoint, "save", lambda path, state: saved.append((path.name, state["step"])))

    assert main(flags("thin", "--eval-interval", "3", "--checkpoint-interval", "2", steps=20)) == 0

    out = capsys.readouterr().out
    assert sum("accuracy" in line for line in out.splitlines() if line.startswith("epoch")) == 1
    assert [step for name, step in saved if name == "last.pt"] == [16, 20]
    assert {name for name, _ in saved} == {"last.pt", "best.pt"}


def test_several_gpus_are_used_by_data_parallel(trainer: Any, project: Callable[[str], ModuleType]) -> None:
    from torch import nn

    model = project("graycnn.trainer").make_model(trainer.opt, gpus=2)

    assert isinstance(model, nn.DataParallel)
    assert not isinstance(project("graycnn.trainer").make_model(trainer.opt, gpus=1), nn.DataParallel)
    state = project("graycnn.checkpoint").state_of(model, trainer.optimizer, "tiny", 1, 64, 0.0)
    assert not any(name.startswith("module.") for name in state["model"])


def test_the_full_size_is_that_of_the_guide(project: Callable[[str], ModuleType]) -> None:
    full = project("graycnn.sizes").SIZES["full"]
    model = project("graycnn.model").GreyNet(full.stem_stride, full.width, full.blocks, 8)

    assert (full.images, full.pixels) == (20_000, 128)
    assert 1e6 < sum(parameter.numel() for parameter in model.parameters()) < 11e6


@pytest.mark.timing
def test_a_full_sample_takes_about_two_milliseconds(project: Callable[[str], ModuleType], tmp_path: Path) -> None:
    images, dataset = project("graycnn.images"), project("graycnn.dataset")
    full = project("graycnn.sizes").SIZES["full"]
    images.draw_images(tmp_path, full, range(8))
    paths = tuple(str(tmp_path / images.image_name(number)) for number in range(8))
    surfaces = dataset.Surfaces(images.Split(paths, tuple(range(8)), full.pixels), 0, augmented=True)

    took_s = []
    for turn in range(12):
        began = time.process_time()
        for index in range(8):
            surfaces[turn * 8 + index]
        took_s.append((time.process_time() - began) / 8)

    assert 0.0005 < statistics.median(took_s) < 0.006


@pytest.mark.timing
def test_loading_takes_most_of_a_tiny_step(trainer: Any) -> None:
    import torch

    # One thread and its own time: what others do on this machine is no property of the project.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    data_s, step_s = [], []
    batches = iter(trainer.train_loader)
    try:
        for _ in range(len(trainer.train_loader)):
            began = time.process_time()
            images, labels = next(batches)
            loaded = time.process_time()
            trainer.train_step(images, labels)
            data_s.append(loaded - began)
            step_s.append(time.process_time() - loaded)
    finally:
        torch.set_num_threads(threads)

    assert statistics.median(data_s) > statistics.median(step_s)


# The same numbers.


def test_two_runs_give_the_same_losses_whoever_loads(counts: dict[str, Any], again: Ended, here: Path) -> None:
    assert again.code == 0, again.err
    assert losses(here, "again") == losses(here, "before")
    assert len(losses(here, "before")) == STEPS


def test_it_learns(again: Ended, here: Path) -> None:
    assert again.final["steps"] == STEPS
    assert again.final["loss"] == pytest.approx(losses(here, "again")[-1], abs=1e-6)
    assert again.final["accuracy"] > 1.5 / 8
    assert sum(losses(here, "again")[-4:]) < sum(losses(here, "again")[:4])


def test_a_resumed_run_goes_on_as_if_never_stopped(
    counts: dict[str, Any], main: Callable[[list[str]], int], flags: Callable[..., list[str]], here: Path
) -> None:
    """Stopped in the middle of an epoch."""
    assert main(flags("first", steps=5)) == 0
    assert main(flags("second", "--resume", str(here / "first" / "last.pt"), steps=12)) == 0

    assert losses(here, "first") + losses(here, "second") == losses(here, "before")[:12]


def test_a_draw_is_the_same_sample_always_and_another_pass_varies_it(trainer: Any) -> None:
    dataset = trainer.train_loader.dataset
    first, label = dataset[3]

    assert first.equal(dataset[3][0])
    assert not first.equal(dataset[3 + len(dataset)][0])
    assert label == dataset[3 + len(dataset)][1]


def test_draws_pass_over_every_image_before_any_comes_again(project: Callable[[str], ModuleType]) -> None:
    draws = project("graycnn.dataset").Draws(10, seed=0, count=25)

    whole = list(draws)
    draws.start, draws.count = 7, 18

    assert sorted(whole[:10]) == list(range(10)) and sorted(whole[10:20]) == list(range(10, 20))
    assert list(draws) == whole[7:]


def test_the_images_do_not_depend_on_the_processes_that_draw_them(
    project: Callable[[str], ModuleType], counts: dict[str, Any], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = project("graycnn.images")
    monkeypatch.setattr(images, "PER_PROCESS", 128)

    images.open_images(here / "by two", "tiny", 2)

    by_one = {path.name: path.read_bytes() for path in (here / "data" / "tiny").iterdir()}
    assert by_one == {path.name: path.read_bytes() for path in (here / "by two" / "tiny").iterdir()}
    assert len(by_one) == 256 + 2
    assert [path.name for path in (here / "by two").iterdir()] == ["tiny"]


def test_making_the_data_is_all_it_does_when_told_so(
    counts: dict[str, Any], main: Callable[[list[str]], int], flags: Callable[..., list[str]], here: Path
) -> None:
    assert main(flags("none", "--make-data-only", "--make-workers", "1")) == 0
    assert not (here / "none").exists() and not (here / "none.json").exists()


def test_images_half_made_are_not_left_behind(
    project: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = project("graycnn.images")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(images, "draw_surface", stopped)

    with pytest.raises(KeyboardInterrupt):
        images.open_images(tmp_path / "data", "tiny", 1)
    assert list((tmp_path / "data").iterdir()) == []


def test_the_readme_opens_with_its_story() -> None:
    title, empty, *story = (WORKLOADS / NAME / "README.md").read_text().splitlines()[:5]

    assert title.startswith(f"# {NAME}: ") and empty == ""
    assert story[2] == "" and all(40 < len(line) <= 110 for line in story[:2])


# The expert's form.


@pytest.mark.variant  # the expert's form is a benchmark's
def test_the_expert_without_other_numbers_learns_the_same_bit_for_bit(
    counts: dict[str, Any], by_expert: Ended, again: Ended, here: Path
) -> None:
    assert by_expert.code == 0, by_expert.err
    assert losses(here, "expert") == losses(here, "before")
    assert by_expert.final == again.final


@pytest.mark.variant  # the expert's form is a benchmark's
def test_the_expert_s_checkpoint_is_the_project_s(by_expert: Ended, again: Ended, here: Path) -> None:
    import torch

    own, other = torch.load(here / "expert" / "last.pt"), torch.load(here / "again" / "last.pt")

    assert own.keys() == other.keys() and own["seen"] == other["seen"] == STEPS * 64
    assert all(own["model"][name].equal(value) for name, value in other["model"].items())


@pytest.mark.parametrize(
    ("allow", "more", "batch", "rate", "interval"),
    [
        ("lossless", [], 64, 0.01, 1),
        ("numeric", [], 64, 0.01, 1),
        ("training", [], 256, 0.02, 5),
        ("training", ["--batch-size", "64", "--eval-interval", "2"], 64, 0.01, 2),
        ("training", ["--learning-rate", "0.001"], 256, 0.001, 5),
    ],
)
def test_the_expert_chooses_within_what_is_allowed(
    project: Callable[[str], ModuleType],
    flags: Callable[..., list[str]],
    allow: str,
    more: list[str],
    batch: int,
    rate: float,
    interval: int,
) -> None:
    opt = project("graycnn_expert.options").parse_expert([*flags("x"), "--allow", allow, *more])

    assert (opt.batch_size, opt.learning_rate, opt.eval_interval) == (batch, pytest.approx(rate), interval)
    assert opt.numeric == (allow != "lossless") and opt.num_workers >= 1


@pytest.mark.variant  # the expert's form is a benchmark's
def test_the_expert_with_everything_allowed_trains_in_pieces(
    counts: dict[str, Any],
    project: Callable[[str], ModuleType],
    flags: Callable[..., list[str]],
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expert_main = project("graycnn_expert.command").main

    assert expert_main(flags("pieces", "--num-workers", "0", steps=3)) == 0

    assert len(losses(here, "pieces")) == 3
    assert all(0 < loss < 4 for loss in losses(here, "pieces"))
    assert "final: steps=3 " in capsys.readouterr().out


def test_every_change_of_the_expert_is_listed_with_its_class_and_place() -> None:
    changes = tomllib.loads((EXPERTS / NAME / "changes.toml").read_text())["change"]

    assert {change["class"] for change in changes} == {"lossless", "numeric", "training"}
    for change in changes:
        assert change.keys() == {"what", "class", "where", "replaces"}
        file, _, function = change["where"].partition(":")
        tree = ast.parse((EXPERTS / NAME / file).read_text())
        assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
