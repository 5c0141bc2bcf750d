"""Crops that are found in source, and the lines that make what they cut."""

from __future__ import annotations

from pathlib import Path

import flatout
from flatout.problems.input.crops import Cropped, find_crops

DEBLUR = Path(flatout.__file__).parent / "workloads" / "spike_deblur" / "deblur"


def found(text: str) -> tuple[Cropped, ...]:
    return find_crops({"data.py": text})


def test_the_bundled_workload_voxelises_whole_frames() -> None:
    files = {name: (DEBLUR / name).read_text() for name in ("dataset.py", "voxel.py")}

    (cropped,) = find_crops(files)

    lines = {(file, files[file].splitlines()[line - 1].strip()) for file, line in cropped.making}
    assert ("voxel.py", "mixed = np.take(volume, taps.low, axis=axis)") in lines
    assert ("dataset.py", "image = pixels.astype(np.float32) / 255.0") in lines
    # A PNG is decoded as a whole whatever is then cut out of it.
    assert ("dataset.py", "pixels = np.array(image)") not in lines


def test_how_much_is_kept_is_read_from_constants() -> None:
    text = "SIDE, FRAME = 32, 128\ndef make(i, size=SIDE):\n    x = np.load(i)\n    top = draw(FRAME - SIDE)\n"
    text += "    return x[top : top + SIDE, top : top + SIDE]\n"

    (cropped,) = found(text)

    assert cropped.kept == 1 / 16
    assert cropped.making == {("data.py", 3)}


def test_transforms_before_a_crop_in_a_list_count_and_those_after_do_not() -> None:
    text = """class Whiten:
    def __call__(self, x):
        return x * self.scale

class Noise:
    def __call__(self, x):
        return x + self.noise

chain = Compose([Whiten(), RandomCrop(64), Noise()])
"""
    (cropped,) = found(text)

    assert cropped.making == {("data.py", 3)} and cropped.location.line == 9


def test_windows_of_texts_resized_crops_and_broken_files_are_none() -> None:
    assert not found("def make(i):\n    x = tokens(i)\n    return x[i : i + 8]\n")
    assert not found("class A:\n    def __call__(self, x):\n        return x * 2\nt = [A(), RandomResizedCrop(8)]\n")
    assert not found("def make(:\n")
