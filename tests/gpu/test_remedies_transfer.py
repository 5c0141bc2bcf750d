"""Copies, waits and logging without holding up the host: same losses, same events, less waiting; undone in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.watching import Ran, Run, Watch, Watched

pytestmark = pytest.mark.gpu
ALL = ("transfer.async", "sync.defer", "sync.skip", "checkpoint.async", "gc.defer")


def _options(*names: str) -> list[str]:
    return [word for name in names for word in ("--remedy", f"{name}=true")]


def _states(seen: Watched) -> dict[str, dict[str, Any]]:
    return {remedy["id"]: remedy for remedy in seen.json["remedies"]}


def _events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    name = "tensorboard.backend.event_processing.event_accumulator"
    accumulator = pytest.importorskip(name, reason="tensorboard is not installed")
    found = {}
    for part in ("events", "events/both_a", "events/both_b"):
        events = accumulator.EventAccumulator(str(folder / part), size_guidance={"scalars": 0})
        events.Reload()
        for tag in events.Tags()["scalars"]:
            found[f"{part}/{tag}"] = [(event.step, event.value) for event in events.Scalars(tag)]
    return found


def test_the_same_losses_and_events_and_less_waiting(watch: Watch, run_bare: Run, tmp_path: Path) -> None:
    bare_folder, folder = tmp_path / "bare", tmp_path / "ours"
    bare_folder.mkdir()
    folder.mkdir()
    deterministic = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}

    bare: Ran = run_bare("remedied.py", "synchronize", cwd=bare_folder, **deterministic)
    seen = watch("remedied.py", "synchronize", cwd=folder, options=_options(*ALL), **deterministic)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses and len(bare.losses) == 1
    assert {name: _states(seen)[name]["state"] for name in ALL} == dict.fromkeys(ALL, "applied"), seen.stderr
    assert _states(seen)["transfer.async"]["live"]["non_blocking_from_step"] == 20
    assert _events(folder) == _events(bare_folder)
    assert len(_events(folder)["events/loss"]) == 120
    assert seen.truth["held_ms_per_step"] < 0.7 * bare.truth["held_ms_per_step"]


@pytest.mark.parametrize(
    ("word", "name", "why"),
    [
        ("writes", "transfer.async", "writes into a batch"),
        ("stream", "transfer.async", "streams of its own"),
        ("stream", "sync.skip", "streams of its own"),
        ("reads", "sync.skip", "copies to the host without blocking"),
    ],
)
def test_it_is_undone_where_the_script_counts_on_the_wait(watch: Watch, word: str, name: str, why: str) -> None:
    seen = watch("remedied.py", "synchronize", word, options=_options(name), CUBLAS_WORKSPACE_CONFIG=":4096:8")

    assert seen.returncode == 0, seen.stderr
    assert _states(seen)[name]["state"] == "reverted"
    assert why in _states(seen)[name]["why"]


def test_a_script_that_writes_into_its_batches_from_the_start_loses_nothing(
    watch: Watch, run_bare: Run, tmp_path: Path
) -> None:
    text = (Path(__file__).parent / "scripts" / "remedied.py").read_text().replace("step > 40", "True")
    script = tmp_path / "train.py"
    script.write_text(text)

    bare = run_bare(script, "writes", CUBLAS_WORKSPACE_CONFIG=":4096:8")
    seen = watch(script, "writes", options=_options("transfer.async"), CUBLAS_WORKSPACE_CONFIG=":4096:8")

    assert seen.losses == bare.losses
    assert _states(seen)["transfer.async"]["state"] == "reverted"


def test_a_checkpoint_of_device_tensors_is_the_state_at_the_call(watch: Watch, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("""
import torch
weights = torch.zeros(4_000_000, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weights], 1.0)
for step in range(10):
    weights.grad = torch.ones_like(weights)
    optimizer.step()
    torch.save({"step": step, "weights": weights}, "last.pt")
    with torch.no_grad():
        weights.add_(1).sub_(1)
    loaded = torch.load("last.pt", map_location="cpu")
    assert loaded["step"] == step and (loaded["weights"] == -(step + 1)).all()
assert torch.load("last.pt")["weights"].is_cuda
""")

    seen = watch(script, cwd=tmp_path, options=_options("checkpoint.async"))

    assert seen.returncode == 0, seen.stderr
    assert _states(seen)["checkpoint.async"]["live"]["saves"] == 8
