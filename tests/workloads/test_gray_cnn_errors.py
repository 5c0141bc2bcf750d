"""gray_cnn says in one line what is wrong with a flag, with its data or with a checkpoint."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.workloads.projects import EXPERTS, WORKLOADS
from tests.workloads.test_gray_cnn import NAME, script


@pytest.fixture(scope="module")
def main() -> Iterator[Callable[[list[str]], int]]:
    """The script's main(), in this process."""
    path = sys.path.copy()
    sys.path[:0] = [str(WORKLOADS / NAME), str(EXPERTS / NAME)]
    yield script().main
    sys.path[:] = path


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, main: Callable[[list[str]], int]) -> Path:
    """A folder with the data."""
    folder = tmp_path_factory.mktemp(NAME)
    assert main(["--data", str(folder / "data"), "--size", "tiny", "--device", "cpu", "--make-data-only"]) == 0
    return folder


@pytest.fixture
def flags(here: Path) -> Callable[..., list[str]]:
    """The flags of a small run; its results go to a folder of that name."""

    def make(name: str, *more: str, steps: int = 8) -> list[str]:
        common = ["--data", here / "data", "--out", here / name, "--steps", steps, "--size", "tiny", "--device", "cpu"]
        return [*map(str, common), *more]

    return make


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--steps", "0"], "--steps: must be at least 1, got 0"),
        (["--batch-size", "many"], "--batch-size: must be a whole number, got 'many'"),
        (["--learning-rate", "nan"], "--learning-rate: must be a number above 0, got 'nan'"),
        (["--size", "huge"], "'huge'"),
        (["--no-such-flag"], "--no-such-flag"),
        (["--batch-size", "600"], "--batch-size 600"),
        (["--resume", "nowhere.pt"], "'nowhere.pt' does not exist"),
        (["--out", "/dev/null/out"], "'/dev/null/out'"),
        (["--data", "/dev/null/data"], "'/dev/null/data/tiny'"),
    ],
)
def test_a_bad_flag_is_told_in_one_line(
    main: Callable[[list[str]], int],
    flags: Callable[..., list[str]],
    capsys: pytest.CaptureFixture[str],
    wrong: list[str],
    said: str,
) -> None:
    assert_one_line(main, [*flags("wrong"), *wrong], said, capsys)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "00003.png").unlink(), "is missing"),
        (lambda folder: (folder / "00003.png").write_bytes(b"no image"), "cannot be read"),
        (
            lambda folder: (folder / "00003.png").write_bytes((folder / "00004.png").read_bytes()[:300]),
            "cannot be read",
        ),
        (lambda folder: (folder / "labels.csv").write_text("00000.png,unknown\n"), "labels.csv"),
        (lambda folder: (folder / "labels.csv").unlink(), "labels.csv"),
        (lambda folder: (folder / "complete.json").unlink(), "is no finished image folder"),
        (lambda folder: (folder / "complete.json").write_text('{"images": 3}'), "holds other images"),
    ],
    ids=["missing", "foreign", "cut short", "bad labels", "no labels", "unfinished", "other images"],
)
@pytest.mark.parametrize("workers", ["0", "1"])
def test_damaged_data_is_told_in_one_line(
    main: Callable[[list[str]], int],
    flags: Callable[..., list[str]],
    here: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
    said: str,
    workers: str,
) -> None:
    shutil.copytree(here / "data" / "tiny", tmp_path / "tiny")
    damage(tmp_path / "tiny")

    assert_one_line(main, [*flags("wrong"), "--data", str(tmp_path), "--num-workers", workers], said, capsys)


def test_a_checkpoint_of_another_size_or_make_is_told_in_one_line(
    main: Callable[[list[str]], int],
    flags: Callable[..., list[str]],
    here: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import torch

    assert main(flags("done", steps=2)) == 0
    last = here / "done" / "last.pt"
    other = tmp_path / "other.pt"
    torch.save({**torch.load(last), "size": "full"}, other)
    foreign = tmp_path / "foreign.pt"
    torch.save({"weights": torch.zeros(3)}, foreign)
    noise = tmp_path / "noise.pt"
    noise.write_bytes(b"\x00" * 100)

    assert_one_line(main, flags("wrong", "--resume", str(other)), "is of --size full, not tiny", capsys)
    assert_one_line(main, flags("wrong", "--resume", str(foreign)), "is no checkpoint of this project", capsys)
    assert_one_line(main, flags("wrong", "--resume", str(noise)), "is no checkpoint of this project", capsys)
    assert_one_line(main, flags("wrong", "--resume", str(last), steps=2), "has done 2", capsys)


def test_the_expert_tells_of_a_damaged_image_in_the_same_way(
    main: Callable[[list[str]], int],
    flags: Callable[..., list[str]],
    here: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(here / "data" / "tiny", tmp_path / "tiny")
    (tmp_path / "tiny" / "00003.png").write_bytes(b"no image")
    arguments = [*flags("wrong"), "--data", str(tmp_path), "--num-workers", "1"]

    assert_one_line(importlib.import_module("graycnn_expert.command").main, arguments, "00003.png", capsys)


def assert_one_line(
    main: Callable[[list[str]], int], arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("train.py: error: ") and err.count("\n") == 1
    assert said in err
