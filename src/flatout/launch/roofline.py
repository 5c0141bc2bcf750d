"""What a GPU can do: measured once in a process of its own and kept in the user's cache; else by its data sheet."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from flatout.model.data_sheets import data_sheet
from flatout.records.atomic import write_atomic
from flatout.records.roofline import Roofline
from flatout.words.codec import decode, encode

_PROGRAM = Path(__file__).with_name("roofline_program.py")
# Raise it when the program measures in another way: what was kept before then no longer counts.
_METHOD = 1
# They would make another thing of what is measured, and the result is kept for runs without them.
_DISTORTING = ("CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")


def measure_roofline(python: str, device: int = 0, limit_s: float = 120.0) -> Roofline | None:
    """Measure this CUDA device with the torch of that interpreter: some seconds, and an eighth of its free memory.

    None where torch sees no such device, where less than 4 GiB of it are free, or without an answer in time.
    """
    with tempfile.TemporaryDirectory(prefix="flatout-roofline-") as folder:
        answer = Path(folder) / "answer.json"
        try:
            subprocess.run(
                # Through a file: what a sitecustomize or torch prints must not get in the way.
                [python, "-c", _PROGRAM.read_text(), str(answer), str(device)],
                env=_unwatched(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=limit_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return _read(answer)


def roofline_of(device_name: str, torch_version: str) -> Roofline | None:
    """What is known of a device without measuring: the kept measurement, else its data sheet."""
    return cached_roofline(device_name, torch_version) or data_sheet(device_name)


def cached_roofline(device_name: str, torch_version: str) -> Roofline | None:
    """The measurement that was kept for this device and version; a file that holds anything else is none."""
    file = _cache_file(device_name, torch_version)
    kept = None if file is None else _read(file)
    if kept is None or (kept.device, kept.torch, kept.source) != (device_name, torch_version, "measured"):
        return None
    return kept


def latest_roofline(device_name: str) -> Roofline | None:
    """The newest measurement that was kept for this device, with whatever version; None without any."""
    folder = _cache_folder()
    with suppress(OSError):
        files = (
            [] if folder is None else sorted(folder.glob(f"*.{_METHOD}.json"), key=lambda file: -file.stat().st_mtime)
        )
        found = (kept for file in files if (kept := _read(file)) is not None)
        return next((kept for kept in found if kept.device == device_name and kept.source == "measured"), None)
    return None


def keep_roofline(roofline: Roofline) -> None:
    """Keep a measurement for later. Where nothing can be written it is made again the next time."""
    file = _cache_file(roofline.device, roofline.torch)
    if file is None:
        return
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(encode(roofline), indent=1))


def _unwatched(environ: Mapping[str, str]) -> dict[str, str]:
    """Without what asks for watching, should this process be watched itself."""
    return {
        name: value for name, value in environ.items() if not name.startswith("FLATOUT_") and name not in _DISTORTING
    }


def _cache_file(device_name: str, torch_version: str) -> Path | None:
    folder = _cache_folder()
    name = re.sub(r"[^A-Za-z0-9.+]+", "-", f"{device_name} torch {torch_version}")
    return None if folder is None else folder / f"{name}.{_METHOD}.json"


def _cache_folder() -> Path | None:
    """None for a user without a home."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "flatout" / "roofline"
    except RuntimeError:
        return None


def _read(file: Path) -> Roofline | None:
    try:
        plain = json.loads(file.read_text())
        found = decode(Roofline, plain) if isinstance(plain, dict) else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return found if found is not None and found.is_sound else None
