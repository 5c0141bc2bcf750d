"""The bundled training projects: where they are, what their story is, and what to try on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flatout.errors import FlatoutError

FOLDER = Path(__file__).resolve().parents[1] / "workloads"
SIZES = ("tiny", "full")
DEFAULT = "gray_cnn"


@dataclass(frozen=True, slots=True)
class Workload:
    """A project with a `train.py`. `steps` by size fill about half a minute; `tries` are flags worth a second run."""

    name: str
    needs: tuple[str, ...]
    steps: dict[str, int]
    tries: tuple[tuple[str, str], ...]

    @property
    def script(self) -> Path:
        return FOLDER / self.name / "train.py"

    def story(self) -> tuple[str, str, str]:
        """Its title, what it trains, and what keeps the GPU idle: the first lines of its README."""
        text = (FOLDER / self.name / "README.md").read_text(encoding="utf-8")
        title, trains, idle = [line.strip() for line in text.splitlines() if line.strip()][:3]
        return title.lstrip("# ").partition(": ")[2], trains, idle


WORKLOADS = (
    Workload(
        "gray_cnn",
        needs=("PIL",),
        steps={"tiny": 120, "full": 250},
        tries=(("--num-workers 2", "let two processes prepare the batches"),),
    ),
    Workload(
        "heatmap_npy",
        needs=("yaml",),
        steps={"tiny": 30, "full": 20},
        tries=(),
    ),
    Workload(
        "bev_seg",
        needs=("PIL",),
        steps={"tiny": 40, "full": 250},
        tries=(),
    ),
    Workload(
        "spike_deblur",
        needs=("PIL", "yaml", "psutil"),
        steps={"tiny": 30, "full": 60},
        tries=(),
    ),
    Workload(
        "avatar_splat",
        needs=("PIL", "tensorboard"),
        steps={"tiny": 40, "full": 250},
        tries=(("--viewer paused", "do not wait for the viewer"),),
    ),
)


def find(name: str) -> Workload:
    """The workload of this name."""
    for workload in WORKLOADS:
        if workload.name == name.replace("-", "_"):
            return workload
    known = ", ".join(workload.name for workload in WORKLOADS)
    raise FlatoutError(f"no workload is called {name!r}; there are {known}")
