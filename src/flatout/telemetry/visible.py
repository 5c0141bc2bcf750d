"""Which GPUs a process sees, in its own order: CUDA_VISIBLE_DEVICES matched against what NVML lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Listed:
    """A GPU (or MIG slice) as NVML lists it. `parent` is the NVML index of the card a slice belongs to."""

    uuid: str
    nvml_index: int | None
    parent: int | None = None


def visible_gpus(listed: Sequence[Listed], setting: str | None) -> list[Listed]:
    """The GPUs behind cuda:0, cuda:1 …  As in CUDA, everything from the first entry that names no GPU on is hidden."""
    cards = [gpu for gpu in listed if gpu.parent is None]
    if setting is None:
        return cards
    chosen: list[Listed] = []
    for entry in setting.split(","):
        gpu = _named(listed, cards, entry.strip())
        if gpu is None:
            break
        if gpu in chosen:
            # CUDA treats a GPU named twice as an error and shows none.
            return []
        chosen.append(gpu)
    return chosen


def _named(listed: Sequence[Listed], cards: Sequence[Listed], entry: str) -> Listed | None:
    if entry.isdigit():
        return next((gpu for gpu in cards if gpu.nvml_index == int(entry)), None)
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    if entry.startswith("MIG-GPU-"):
        return _old_mig_name(listed, cards, entry)
    # A UUID may be shortened as long as it is unambiguous.
    matches = [gpu for gpu in listed if gpu.uuid.lower().startswith(entry.lower())]
    return matches[0] if len(matches) == 1 else None


def _old_mig_name(listed: Sequence[Listed], cards: Sequence[Listed], entry: str) -> Listed | None:
    """Drivers before 470 name a slice MIG-GPU-<card's uuid>/<gpu instance>/<compute instance>."""
    exact = [gpu for gpu in listed if gpu.uuid.lower() == entry.lower()]
    if exact:
        return exact[0]
    card_uuid = entry.removeprefix("MIG-").split("/", 1)[0].lower()
    return next((gpu for gpu in cards if gpu.uuid.lower() == card_uuid), None)


def setting_of(pid: int, proc: Path = Path("/proc")) -> str | None:
    """CUDA_VISIBLE_DEVICES as that process was started with. No other variable is looked at."""
    try:
        environment = (proc / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    name = b"CUDA_VISIBLE_DEVICES="
    for variable in environment.split(b"\0"):
        if variable.startswith(name):
            return variable[len(name) :].decode(errors="replace")
    return None
