"""Other words in the user's command: flags of the script, and copies of config files."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.experiment.tuning.knobs import names_file, names_override, with_files, with_flag


@pytest.mark.parametrize(
    ("command", "flag", "value", "expected"),
    [
        ("train.py --window 8 data", "--window", 7, "train.py --window 7 data"),
        ("train.py --window=8 data", "--window", 7, "train.py --window=7 data"),
        ("train.py data", "--window", 7, "train.py data --window 7"),
        ("train.py --depths 2 2 -1 --lr 3", "--depths", "4 4", "train.py --depths 4 4 --lr 3"),
        ("train.py --windows 9", "--window", 7, "train.py --windows 9 --window 7"),
        ("train.py --lr -3", "--lr", "-4", "train.py --lr -4"),
        ("train.py --fast --lr 3", "--fast", "absent", "train.py --lr 3"),
        ("train.py --fast --lr 3", "--fast", "present", "train.py --fast --lr 3"),
        ("train.py --lr 3", "--fast", "present", "train.py --lr 3 --fast"),
        ("train.py model.depth=4 +x=1", "model.depth", 6, "train.py model.depth=6 +x=1"),
        ("train.py +x=1", "x", 2, "train.py +x=2"),
        # What a launcher is given is not the script's.
        ("torchrun --seed 1 train.py --seed 2", "--seed", 3, "torchrun --seed 1 train.py --seed 3"),
        ("python -u -m pkg.train --seed 2", "--seed", 3, "python -u -m pkg.train --seed 3"),
        ("-m pkg.train --seed 2", "--seed", 3, "-m pkg.train --seed 3"),
        (
            "python -m torch.distributed.run --seed 1 train.py --seed 2",
            "--seed",
            3,
            "python -m torch.distributed.run --seed 1 train.py --seed 3",
        ),
    ],
)
def test_a_flag_gets_its_value(command: str, flag: str, value: Any, expected: str) -> None:
    assert with_flag(command.split(), flag, value) == tuple(expected.split())


def test_a_copy_takes_the_place_of_its_file() -> None:
    command = ("train.py", "--config=a.yaml", "a.yaml", "b.yaml", "x=a.yaml.bak")

    changed = with_files(command, {"a.yaml": "copies/a.yaml"})

    assert changed == ("train.py", "--config=copies/a.yaml", "copies/a.yaml", "b.yaml", "x=a.yaml.bak")


def test_what_a_command_names() -> None:
    command = ("train.py", "--config=a.yaml", "b.yaml", "model.depth=4")

    assert names_file(command, "a.yaml") and names_file(command, "b.yaml") and not names_file(command, "c.yaml")
    assert names_override(command, "model.depth") and not names_override(command, "model")
