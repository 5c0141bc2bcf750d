"""Libraries that open files past Python: here they do so by the system's own calls, as theirs would."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flatout.attach import imports
from flatout.attach.trial import sandbox

_LIBRARIES = {
    "cv2.py": """
import posix
def imwrite(filename, image):
    out = posix.open(filename, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC)
    posix.write(out, image)
    posix.close(out)
    return True
def imread(filename, flags=0):
    return posix.read(posix.open(filename, posix.O_RDONLY), 100)
""",
    "h5py/__init__.py": "from h5py._hl.files import File",
    "h5py/_hl/__init__.py": "",
    "h5py/_hl/files.py": """
import posix
class File:
    def __init__(self, name, mode="r", **more):
        self.file = posix.open(name, posix.O_RDONLY if mode == "r" else posix.O_RDWR | posix.O_CREAT)
        self.seen = posix.read(self.file, 100)
        if mode != "r":
            posix.write(self.file, b"+")
        posix.close(self.file)
""",
}


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the user's, with stand-ins for the libraries to be imported."""
    for name, text in _LIBRARIES.items():
        (tmp_path / "lib" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lib" / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    (tmp_path / "user").mkdir()
    (tmp_path / "user/old.h5").write_text("old")
    monkeypatch.chdir(tmp_path / "user")
    sandbox.begin(str(tmp_path / "scratch"), [str(tmp_path / "user")], lambda text: None)
    yield tmp_path / "user"
    sandbox.end()
    imports.forget()
    for name in [name for name in sys.modules if name.split(".")[0] in ("cv2", "h5py")]:
        del sys.modules[name]


def test_a_function_is_handed_the_mirror_to_write_and_to_read(user: Path) -> None:
    cv2: Any = importlib.import_module("cv2")

    cv2.imwrite("image.png", b"1")
    cv2.imwrite(filename=f"{user}/second.png", image=b"2")

    assert (cv2.imread("image.png"), cv2.imread(f"{user}/second.png")) == (b"1", b"2")
    assert Path("image.png").read_bytes() == b"1"
    sandbox.end()
    assert [path.name for path in user.iterdir()] == ["old.h5"]


def test_a_class_that_updates_gets_a_copy_and_one_that_reads_the_original(user: Path) -> None:
    h5py: Any = importlib.import_module("h5py")

    assert h5py.File("old.h5").seen == b"old"
    assert not Path("../scratch/files" + str(user)).exists()
    assert h5py.File("old.h5", "a").seen == b"old"
    assert h5py.File("old.h5", mode="r").seen == b"old+"
    sandbox.end()
    assert (user / "old.h5").read_text() == "old"


def test_after_the_end_they_are_as_they_were(user: Path) -> None:
    cv2: Any = importlib.import_module("cv2")
    during = cv2.imwrite

    sandbox.end()

    assert during is not cv2.imwrite
    cv2.imwrite("image.png", b"1")
    assert (user / "image.png").read_bytes() == b"1"


def test_a_module_that_the_script_wrote_is_imported(user: Path) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    Path("made_by_script.py").write_text("value = 3")

    spec = spec_from_file_location("made_by_script", user / "made_by_script.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)

    assert module.value == 3
    sandbox.end()
    assert not (user / "__pycache__").exists()
