"""bev_seg's parts: the geometry agrees with the label, the pool sums, the costs are where the guide has them."""

from __future__ import annotations

import ast
import importlib
import json
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from tests.workloads.projects import EXPERTS, WORKLOADS

NAME = "bev_seg"
Project = Callable[[str], ModuleType]


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    """Modules of the project (`bev.…`) and of the expert (`bev_expert.…`)."""
    path = sys.path.copy()
    sys.path[:0] = [str(WORKLOADS / NAME), str(EXPERTS / NAME)]
    yield importlib.import_module
    sys.path[:] = path


@pytest.fixture(scope="module")
def full_data(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two samples of the full size."""
    makedata = project("bev.makedata")
    folder = tmp_path_factory.mktemp("full") / "full"
    return Path(makedata.ensure_data(folder, makedata.Plan(1, 1, 900, 1600), 1))


def full_dataset(project: Project, folder: Path, **changes: Any) -> Any:
    settings = {"augmented": True, "seed": 0, "delay_ms": 0.0, **changes}
    return project("bev.dataset").RoadScenes(folder / "train", 1, (600, 800), **settings)


def test_a_full_sample_comes_from_a_large_jpeg_in_floats(project: Project, full_data: Path) -> None:
    sample = full_dataset(project, full_data)[0]

    assert sample["image"].shape == (3, 600, 800) and sample["image"].dtype == torch.float32
    assert sample["label"].shape == (98, 100) and int(sample["label"].max()) < 14
    assert len(sample["label"].unique()) >= 3


@pytest.mark.timing
def test_a_full_sample_costs_tens_of_milliseconds(project: Project, full_data: Path) -> None:
    dataset = full_dataset(project, full_data)
    started = time.process_time()
    for epoch in range(4):
        dataset[epoch]

    assert (time.process_time() - started) / 4 > 0.025


def test_a_slow_disk_can_be_played(project: Project, full_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)

    full_dataset(project, full_data, delay_ms=40.0)[0]
    full_dataset(project, full_data)[0]

    assert slept == [0.04]


def test_augmentation_follows_from_seed_and_index_alone(project: Project, full_data: Path) -> None:
    first, again = full_dataset(project, full_data), full_dataset(project, full_data)
    other = full_dataset(project, full_data, seed=1)
    first[5]

    assert torch.equal(first[2]["image"], again[2]["image"])
    assert not torch.equal(first[2]["image"], again[3]["image"])
    assert not torch.equal(first[2]["image"], other[2]["image"])


@pytest.mark.parametrize("flip", [False, True])
def test_a_point_on_the_road_keeps_its_cell_through_camera_and_augmentation(project: Project, flip: bool) -> None:
    """GIVEN a point of the map WHEN the camera sees it in the moved image THEN its pixel and depth lead back to it."""
    from PIL import Image

    augment, dataset = project("bev.augment"), project("bev.dataset")
    scene = project("bev.scene").random_scene(np.random.default_rng(3), 1600, 900)
    point = np.array([4.0, 0.0, 20.0])
    camera, intrinsics = scene.camera_to_ego, scene.intrinsics

    seen = intrinsics @ camera[:, :3].T @ (point - camera[:, 3])
    original = seen[:2] / seen[2]
    placement = augment.Placement(1.1, 0.3, 0.6, flip)
    _, moved = augment.place(Image.new("RGB", (1600, 900)), intrinsics, (600, 800), placement)
    pixel = (moved @ np.linalg.inv(intrinsics) @ [*original, 1.0])[:2]
    if flip:
        (camera, _), moved = dataset._mirror(camera, []), moved @ np.diag([-1.0, 1.0, 1.0])
        point = point * [-1, 1, 1]
    depth = seen[2]
    back = camera[:, :3] @ np.linalg.inv(moved) @ [pixel[0] * depth, pixel[1] * depth, depth] + camera[:, 3]

    assert back == pytest.approx(point, abs=1e-6)


def test_the_label_shows_what_the_scene_holds(project: Project) -> None:
    grid = project("bev.grid")
    square = [(-2.0, 10.0), (2.0, 10.0), (2.0, 14.0), (-2.0, 14.0)]

    label = grid.rasterise([(5, square)])

    assert label[int((12 - 1) / 0.5), 50] == 5 and label[int((20 - 1) / 0.5), 50] == 0
    assert (label == 5).sum() == pytest.approx(64, abs=9)


def random_points() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(3, 500, generator=generator)
    cells = torch.randint(0, 40, (500,), generator=generator)
    return points, cells, torch.rand(500, generator=generator) < 0.7


def test_the_pool_is_a_sum_over_cells_with_its_gradient(project: Project) -> None:
    pool = project("bev.lift").cumsum_pool
    points, cells, inside = random_points()
    ours, plain = points.clone().requires_grad_(), points.clone().requires_grad_()

    pooled = pool(ours, cells, inside, 50)
    wanted = torch.zeros(3, 50).index_add(1, cells, plain * inside)
    weights = torch.randn(3, 50)
    (pooled * weights).sum().backward()
    (wanted * weights).sum().backward()

    assert torch.allclose(pooled, wanted, atol=1e-4)
    assert torch.allclose(ours.grad, plain.grad)


def test_the_experts_pool_is_the_same_to_the_last_bit(project: Project) -> None:
    points, cells, inside = random_points()

    ours = project("bev.lift").cumsum_pool(points, cells, inside, 50)
    theirs = project("bev_expert.pooling").static_pool(points, cells, inside, 50)

    assert torch.equal(ours, theirs)


def test_windows_come_back_in_place_and_shifted_ones_do_not_mix(project: Project) -> None:
    swin = project("bev.swin")
    x = torch.randn(2, 8, 12, 3)

    assert torch.equal(swin.join_windows(swin.split_windows(x, 4), 4, 8, 12), x)
    mask = swin.shift_mask(8, 12, 4, 2, torch.device("cpu"))
    assert mask.shape == (6, 16, 16)
    assert not mask[0].any() and mask[-1].any()


def test_the_full_backbone_is_a_swin_t(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("trunc_normal_", "kaiming_uniform_"):
        monkeypatch.setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
    config = project("bev.config")
    full = config.load_config(config.CONFIGS / "lss_swin.py", "full")

    model = project("bev.network").BevSegmenter(full.model, full.data.image_size)

    assert sum(p.numel() for p in model.backbone.parameters()) == pytest.approx(27.5e6, rel=0.01)
    assert model.lift.frustum.shape == (49, 38, 50, 3)
    assert full.model.context_channels == 64


@pytest.mark.parametrize(
    ("name", "batch", "half", "workers"),
    [("lss_swin", 4, False, 2), ("lss_swin_optimized", 6, True, 12), ("lss_swin_speed", 4, True, 16)],
)
def test_the_guides_configs(project: Project, name: str, batch: int, half: bool, workers: int) -> None:
    config = project("bev.config")
    chosen = config.load_config(config.CONFIGS / f"{name}.py", "full")

    assert (chosen.data.samples_per_gpu, chosen.fp16.enabled, chosen.data.workers_per_gpu) == (batch, half, workers)


def test_the_learning_rate_follows_the_batch(project: Project) -> None:
    config = project("bev.config")
    full = config.load_config(config.CONFIGS / "lss_swin_optimized.py", "full")
    scaled = project("bev.hooks").scaled_lr

    assert scaled(full.optimizer.lr, full.lr_config, 6, 1) == pytest.approx(3e-4)
    assert scaled(full.optimizer.lr, full.lr_config, 4, 2) == pytest.approx(4e-4)


def test_mean_iou_counts_only_classes_that_occur(project: Project) -> None:
    metrics = project("bev.metrics")
    label, predicted = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])

    matrix = metrics.confusion(predicted, label, 3)

    assert matrix.tolist() == [[1, 1, 0], [0, 2, 0], [0, 0, 0]]
    assert metrics.mean_iou(matrix) == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_data_is_the_same_however_many_processes_make_it(project: Project, tmp_path: Path) -> None:
    makedata = project("bev.makedata")
    plan = makedata.Plan(3, 1, 72, 128)

    one, two = (makedata.ensure_data(tmp_path / str(n), plan, n) for n in (1, 2))

    names = sorted(path.relative_to(one) for path in one.rglob("*.*"))
    assert len(names) == 9
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in names)
    assert json.loads((one / "complete.json").read_text())["train"] == 3


def test_the_experts_workers_fit_cores_and_shared_memory(project: Project) -> None:
    choose = project("bev_expert.loading").choose_workers
    gib, batch = 2**30, 93 * 10**6

    assert choose(16, batch, 64 * gib) == (12, 4)
    assert choose(2, batch, 64 * gib) == (2, 4)
    assert choose(16, batch, gib) == (5, 1)


def test_the_lists_of_changes_name_classes_and_functions_that_exist() -> None:
    folder = EXPERTS / NAME
    changes = tomllib.loads((folder / "changes.toml").read_text())["change"]

    assert {change["class"] for change in changes} == {"lossless", "numeric", "training"}
    for change in changes:
        assert change["what"] and change["replaces"]
        file, _, name = change["where"].partition(":")
        body: list[ast.stmt] = ast.parse((folder / file).read_text()).body
        for part in name.split("."):
            named = {n.name: n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
            assert part in named, change["where"]
            body = named[part].body


def test_the_story_fits_two_lines() -> None:
    lines = (WORKLOADS / NAME / "README.md").read_text().splitlines()

    assert lines[0].startswith(f"# {NAME}: ")
    assert all(0 < len(line) <= 110 for line in lines[1:3]) and lines[3] == ""
