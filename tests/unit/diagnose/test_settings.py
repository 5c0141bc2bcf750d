"""What a run was configured with, read off its command line and its files without executing anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.diagnose.settings import keywords, settings_of
from flatout.records.evidence import Setting
from flatout.records.report import Location


def read(file: str) -> str:
    path = Path(file)
    return path.read_text() if path.is_file() else ""


def values(*argv: str, cwd: Path = Path("/nowhere")) -> dict[str, object]:
    return {setting.name: setting.value for setting in found(*argv, cwd=cwd)}


def found(*argv: str, cwd: Path) -> tuple[Setting, ...]:
    return settings_of(argv, cwd, read)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--num-workers 8 --batch-size=64", {"num_workers": 8, "batch_size": 64}),
        ("--workers 4 -j 4", {"num_workers": 4}),
        ("--options data.workers_per_gpu=8 fp16.enabled=True", {"num_workers": 8, "amp": True}),
        ("--amp --pin-memory --no-persistent-workers", {"amp": True, "pin_memory": True, "persistent_workers": False}),
        ("--pin-memory false", {"pin_memory": False}),
        ("--precision bf16-mixed", {"precision": "bf16-mixed"}),
        ("--test-batch-size 1000 --eval-workers 2 --make-workers 4", {}),
        ("--num-workers 2 --loader.num_workers 4", {}),
        ("--lr 0.1 --epochs 3 --seed -1", {}),
    ],
)
def test_a_command_line(words: str, expected: dict[str, object]) -> None:
    assert values("python", "train.py", *words.split()) == expected


def test_what_stands_before_the_script_is_the_launchers() -> None:
    assert values("torchrun", "--workers", "3", "train.py", "--num-workers", "2") == {"num_workers": 2}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "# c\nloader:\n  num_workers: 24\n  pin_memory: true\nval:\n  num_workers: 1\n"),
        ("a.json", '{"loader":\n {"pin_memory": true,\n "num_workers": 24}}'),
        ("a.toml", "[loader]\npin_memory = true\nnum_workers = 24\n"),
        ("a.py", '"""Config."""\nloader = dict(pin_memory=True,\n    num_workers=24)\nval = {"num_workers": 3}\n'),
    ],
)
def test_a_config_file_that_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)

    settings = {setting.name: setting for setting in found("train.py", "--config", name, cwd=tmp_path)}

    assert settings["num_workers"].value == 24 and settings["pin_memory"].value is True
    place = settings["num_workers"].location
    assert place is not None and place.file == str(tmp_path / name)
    assert place.line == 1 + next(
        n for n, line in enumerate(text.splitlines()) if "num_workers" in line and "24" in line
    )


def test_a_python_config_builds_on_its_bases(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text("data = dict(workers_per_gpu=20, pin_memory=True)\n")
    (tmp_path / "own.py").write_text("_base_ = ['base.py']\ndata = dict(workers_per_gpu=2)\n")

    assert values("train.py", "own.py", cwd=tmp_path) == {"num_workers": 2, "pin_memory": True}


def test_a_value_knows_what_it_took_the_place_of(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text("data = dict(workers_per_gpu=20, pin_memory=True)\n")
    (tmp_path / "own.py").write_text("_base_ = ['base.py']\ndata = dict(workers_per_gpu=2)\n")

    settings = {setting.name: setting for setting in found("train.py", "own.py", cwd=tmp_path)}

    over = settings["num_workers"].over
    assert over is not None and (over.value, over.location) == (20, Location(str(tmp_path / "base.py"), 1))
    assert settings["pin_memory"].over is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "import os\nnum_workers = 8\n"),
        ("a.py", "num_workers = 8\nfor i in range(3):\n    num_workers += i\n"),
        ("a.py", "num_workers = int('8')\n"),
        ("a.yaml", "base: &b {num_workers: 8}\nloader:\n  <<: *b\n"),
        ("a.yaml", "defaults:\n  - loader: fast\nnum_workers: 8\n"),
        ("a.yaml", "num_workers: ${cpus}\nloader: [\n"),
        ("a.json", "{"),
        ("missing.yaml", ""),
    ],
)
def test_what_reading_cannot_follow_is_not_configured(tmp_path: Path, name: str, text: str) -> None:
    if text:
        (tmp_path / name).write_text(text)

    assert values("train.py", "--config", name, cwd=tmp_path) == {}


def test_a_config_that_would_do_something_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"open({str(tmp_path / 'made')!r}, 'w').close()\nnum_workers = 8\n")

    assert values("train.py", "--config", "a.py", cwd=tmp_path) == {}
    assert not (tmp_path / "made").exists()


def test_the_command_line_beats_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("num_workers: 24\n")

    assert values("train.py", "--config", "a.yaml", "--num-workers", "2", cwd=tmp_path) == {"num_workers": 2}


def project(folder: Path, source: str, **configs: str) -> None:
    (folder / "configs").mkdir()
    (folder / "train.py").write_text(source)
    for name, text in configs.items():
        (folder / "configs" / f"{name}.yaml").write_text(text)


def test_the_default_config_is_found_by_a_word_of_the_command_line(tmp_path: Path) -> None:
    project(tmp_path, 'CONFIGS = Path(__file__).parent / "configs"', tiny="num_workers: 1", full="num_workers: 9")

    assert values("train.py", "--size", "tiny", cwd=tmp_path) == {"num_workers": 1}
    assert values("train.py", cwd=tmp_path) == {}


def test_where_all_configs_agree_it_does_not_matter_which_was_taken(tmp_path: Path) -> None:
    project(
        tmp_path, 'CONFIGS = Path(__file__).parent / "configs"', a="num_workers: 9\nbatch_size: 1", b="num_workers: 9"
    )

    assert values("train.py", cwd=tmp_path) == {"num_workers": 9}


def test_configs_that_the_script_never_names_are_none_of_ours(tmp_path: Path) -> None:
    project(tmp_path, "print('hello')", a="num_workers: 9")

    assert values("train.py", cwd=tmp_path) == {}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("DataLoader(d, batch_size=1, num_workers=cfg.n)", {"batch_size": "literal", "num_workers": "computed"}),
        ("torch.utils.data.DataLoader(d)", {}),
        ("DataLoader(d, 32)", None),
        ("DataLoader(d, **settings)", None),
        ("make_loader(d, num_workers=2)", None),
        ("DataLoader(d,", None),
    ],
)
def test_what_a_call_shows(call: str, expected: dict[str, str] | None) -> None:
    assert keywords(f"x = 1\nloader = {call}\n", 2) == expected
