"""Profiles: what is asked for, and mistakes with the line they are in."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.errors import FlatoutError
from flatout.launch.profile import read_profile


def _file(folder: Path, text: str) -> Path:
    file = folder / "flatout.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    "text",
    [
        "[remedies]\nprecision.tf32 = true\n",
        '[remedies]\nprecision = "tf32"\n',
        '[remedies]\n"precision.tf32" = true\n',
        "[remedies.precision]\ntf32 = true\n",
        "remedies = { precision = { tf32 = true } }\n",
    ],
)
def test_a_remedy_is_named_in_any_way_that_toml_has(tmp_path: Path, text: str) -> None:
    assert read_profile(_file(tmp_path, text), ()).values == {"precision.tf32": True}


def test_the_command_line_wins(tmp_path: Path) -> None:
    file = _file(tmp_path, "[remedies]\nprecision.tf32 = true\n")

    assert read_profile(file, ["precision.tf32=off"]).values == {}
    assert read_profile(None, ["precision=tf32"]).values == {"precision.tf32": True}
    assert read_profile(None, ["precision.tf32"]).values == {"precision.tf32": True}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[remedies]\n\n# faster\nprecison.tf32 = true\n", r"flatout\.toml:4: no remedy is called 'precison\.tf32'"),
        (
            '[remedies.precision]\ntf32 = "maybe"\n',
            r"flatout\.toml:2: precision\.tf32 must be true or false, got 'maybe'",
        ),
        ('name = "x"\n\n[remedies]\n"no.such" = 1\n', r"flatout\.toml:4: no remedy is called 'no\.such'"),
        ("[remedy]\nprecision.tf32 = true\n", r"has no \[remedies\] table"),
        ("[remedies\n", r"flatout\.toml cannot be read: .*line 1"),
        ("remedies = 3\n", r"has no \[remedies\] table"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(FlatoutError, match=words):
        read_profile(_file(tmp_path, text), ())


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FlatoutError, match="cannot be read"):
        read_profile(tmp_path / "nothing.toml", ())


def test_a_word_that_is_no_remedy() -> None:
    with pytest.raises(FlatoutError, match=r"--remedy '=3': write it as ID=VALUE"):
        read_profile(None, ["=3"])
