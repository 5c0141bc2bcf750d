"""The parts of spike_deblur: data path, cache, network, presets; and the expert's data path beside them."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from tests.workloads.projects import EXPERTS, WORKLOADS

PROJECT, EXPERT = WORKLOADS / "spike_deblur", EXPERTS / "spike_deblur"


@pytest.fixture(scope="module", autouse=True)
def on_path() -> Iterator[None]:
    path = list(sys.path)
    sys.path[:0] = [str(PROJECT), str(EXPERT)]
    yield
    sys.path[:] = path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, on_path: None) -> Path:
    from deblur.generate import make_data

    return make_data(tmp_path_factory.mktemp("spike_deblur"), "tiny", 1).parent


def _config(*options: str, name: str = "baseline", size: str = "tiny") -> Any:
    from deblur.config import load

    return load(PROJECT / "configs" / f"{name}.yaml", size, list(options))


def _dataset(data: Path, config: Any, train: bool = True) -> Any:
    from deblur.dataset import SpikeDeblurDataset
    from deblur.generate import SHAPES

    return SpikeDeblurDataset(data / "tiny", config, SHAPES["tiny"], 0, train)


def test_frames_are_voxelised_whole_and_then_cropped(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deblur import dataset

    made: list[tuple[int, ...]] = []

    def voxelise(*args: Any) -> Any:
        voxels = original(*args)
        made.append(voxels.shape)
        return voxels

    original = dataset.voxelise
    monkeypatch.setattr(dataset, "voxelise", voxelise)
    sample = _dataset(data, _config())[0]
    assert made == [(4, 64, 96)] * 3
    assert {name: tuple(part.shape) for name, part in sample.items()} == {
        "blur": (3, 3, 32, 32), "sharp": (3, 3, 32, 32), "spike": (3, 4, 32, 32)
    }  # fmt: skip
    assert all(part.dtype == torch.float32 for part in sample.values())


def test_loader_before_and_in_a_preset(data: Path) -> None:
    from deblur.dataset import RandomClips
    from deblur.loader import train_loader

    def live(name: str) -> tuple[Any, ...]:
        config = _config(name=name)
        clips = _dataset(data, config)
        loader = train_loader(clips, RandomClips(len(clips), 0), config)
        return (
            loader.num_workers,
            loader.pin_memory,
            loader.persistent_workers,
            loader.prefetch_factor,
            loader.batch_size,
        )

    assert live("baseline") == (2, False, False, 2, 1)
    assert live("lowmem") == (8, True, True, 2, 1)
    assert live("fast")[1:] == (True, True, 6, 2)


def test_clips_are_random_and_depend_on_seed_and_epoch_only(data: Path) -> None:
    from deblur.dataset import RandomClips

    sampler = RandomClips(24, 0)
    order = list(sampler)
    assert sorted(order) == list(range(24))
    assert order != sorted(order)
    sampler.set_epoch(1)
    assert list(sampler) != order
    sampler.set_epoch(0, skip=5)
    assert list(sampler) == order[5:]
    clips = _dataset(data, _config("DATA.CROP_SCHEDULE=[[0, 16], [2, 32]]"))
    epochs = []
    for epoch in range(3):
        clips.set_epoch(epoch)
        epochs.append(clips[3]["blur"])
    assert [part.shape[-1] for part in epochs] == [16, 16, 32]
    assert not torch.equal(epochs[0], epochs[1])


def test_precomputed_voxels_are_the_same_numbers(data: Path) -> None:
    from deblur.generate import make_voxels

    config = _config("DATA.USE_PRECOMPUTED_VOXELS=true")
    make_voxels(data / "tiny", "tiny", 4, 1)
    assert torch.equal(_dataset(data, config)[2]["spike"], _dataset(data, _config())[2]["spike"])


def test_compact_clips_give_the_same_batches(data: Path) -> None:
    from torch.utils.data import default_collate

    from deblur.generate import SHAPES
    from deblur_expert.compact import Assembler, CompactClips

    config = _config()
    for training in (True, False):
        original = _dataset(data, config, training)
        compact = CompactClips(data / "tiny", config, SHAPES["tiny"], 0, training)
        assert len(compact) == len(original)
        pair = [0, len(original) - 1]
        expected = default_collate([original[i] for i in pair])
        assembled = Assembler(config, SHAPES["tiny"], torch.device("cpu"))(default_collate([compact[i] for i in pair]))
        assert all(torch.equal(assembled[name], expected[name]) for name in expected)


def test_cache_clones_on_a_hit_and_evicts_the_oldest() -> None:
    from deblur.cache import CacheStats, LRUCache

    frame = {"blur": torch.zeros(256)}  # 1 KiB
    cache = LRUCache(2 / 2**20, CacheStats(0))
    cache.put((0, 0), frame)
    cache.put((0, 1), {"blur": torch.ones(256)})
    hit = cache.get((0, 0))
    assert hit is not None
    assert hit["blur"].data_ptr() != frame["blur"].data_ptr()
    cache.put((0, 2), frame)
    assert cache.get((0, 1)) is None
    assert cache.get((0, 0)) is not None
    assert cache.current_memory == 2048
    cache.put((0, 3), {"blur": torch.zeros(4096)})  # larger than the whole cache: not kept
    assert len(cache) == 2


def test_network_has_eight_stages_recomputed_blocks_and_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    from deblur import attention
    from deblur.model import SpikeVRT

    full = _config(size="full")
    with torch.device("meta"):
        large = SpikeVRT(32, full.MODEL)
    assert [len(stage.blocks) for stage in large.stages] == [8, 8, 8, 8, 4, 4, 4, 8]
    assert 2e6 < sum(parameter.numel() for parameter in large.parameters()) < 5e6

    calls: list[Any] = []
    original = attention.checkpoint
    monkeypatch.setattr(attention, "checkpoint", lambda *a, **k: calls.append(a) or original(*a, **k))
    config = _config()
    model = SpikeVRT(4, config.MODEL)
    blur, spike = torch.rand(1, 3, 3, 32, 32), torch.rand(1, 3, 4, 32, 32)
    output = model(blur, spike)
    assert len(calls) == 2 * sum(config.MODEL.VRT_DEPTHS)
    assert output.dtype == torch.float32
    assert output.shape == blur.shape
    assert not config.TRAIN.AMP_ENABLED


@pytest.mark.parametrize("window", [8, 7, 6])
def test_windows_see_only_themselves(window: int) -> None:
    from deblur.attention import WindowAttention

    layer = WindowAttention(8, 8, window, shifted=False)
    x = torch.rand(1, 16, 16, 8)
    other = x.clone()
    other[0, 0, 0] += 1
    changed = (layer(x) != layer(other)).any(dim=-1)[0]
    assert changed[:window, :window].any()
    assert not changed[window:].any()
    assert not changed[:, window:].any()


def test_chunks_change_the_pieces_and_not_the_result() -> None:
    from deblur.attention import TemporalAttention, chunk_shape
    from deblur.config import Chunks

    assert chunk_shape(Chunks(), 5, 256, 256) == (64, 64)
    assert chunk_shape(Chunks(CHUNK_SIZE=128), 5, 256, 256) == (64, 128)  # as many tokens as MAX_BATCH_TOKENS allows
    assert chunk_shape(Chunks(CHUNK_SIZE=128, ADAPTIVE_CHUNK=False), 5, 256, 256) == (128, 128)
    assert chunk_shape(Chunks(CHUNK_SHAPE="rows"), 5, 256, 256) == (16, 256)
    torch.manual_seed(0)
    layer = TemporalAttention(8, Chunks(CHUNK_SIZE=4))
    x, context = torch.rand(1, 3, 10, 12, 8), torch.rand(1, 3, 10, 12, 8)
    in_pieces = layer(x, context)
    layer.chunks = Chunks(CHUNK_SIZE=64)
    torch.testing.assert_close(layer(x, context), in_pieces)


def test_presets_are_the_baseline_with_few_keys_changed() -> None:
    def flat(name: str) -> dict[str, Any]:
        def walk(values: Any, where: str) -> Iterator[tuple[str, Any]]:
            for key, value in values.items():
                yield from walk(value, f"{where}{key}.") if isinstance(value, dict) else [(f"{where}{key}", value)]

        return dict(walk(yaml.safe_load((PROJECT / "configs" / f"{name}.yaml").read_text()), ""))

    def changed(name: str) -> dict[str, Any]:
        values, baseline = flat(name), flat("baseline")
        assert values.keys() == baseline.keys()
        return {key.rpartition(".")[2]: value for key, value in values.items() if value != baseline[key]}

    served = {"PIN_MEMORY": True, "PERSISTENT_WORKERS": True, "AMP_ENABLED": True}
    shallow = {"VRT_DEPTHS": [8, 7, 8, 8, 4, 4, 4, 6], "WINDOW_SIZE": 7}
    chunks = {"MAX_BATCH_TOKENS": 65536, "TOTAL_WORKERS": "auto", "CACHE_SIZE_GB": 50.0}
    assert changed("opt") == {**served, **shallow, **chunks, "CHUNK_SIZE": 80, "TRAIN_PREFETCH_FACTOR": 4}
    assert changed("fast") == {
        **served, **chunks, "VRT_DEPTHS": [8, 6, 6, 8, 4, 4, 4, 4], "WINDOW_SIZE": 6, "CHUNK_SIZE": 96,
        "TRAIN_PREFETCH_FACTOR": 6, "TRAIN_CROP_SIZE": 128, "BATCH_SIZE": 2,
    }  # fmt: skip
    assert changed("lowmem") == {
        **served, **shallow, "TOTAL_WORKERS": 8, "CACHE_SIZE_GB": 20.0, "GRADIENT_ACCUMULATION_STEPS": 4
    }  # fmt: skip
    assert changed("student") == {"VRT_DEPTHS": [4, 4, 4, 4, 2, 2, 2, 2]}


@pytest.mark.parametrize("place", [(0, 0, False, False), (464, 1024, True, False), (201, 333, False, True)])
def test_cropping_first_gives_the_same_voxels_at_full_size(place: tuple[int, int, bool, bool]) -> None:
    from deblur.dataset import Crop
    from deblur.generate import SHAPES
    from deblur.voxel import count_spikes, voxelise
    from deblur_expert.compact import Assembler, Span

    shape, config = SHAPES["full"], _config("DATA.SPIKE_BINS=32")
    packed = np.random.default_rng(0).integers(0, 256, shape.spikes.packed, dtype=np.uint8)
    whole = torch.from_numpy(voxelise(packed, 32, shape.height, shape.width))
    crop = Crop(place[0], place[1], 256, place[2], place[3])
    rows = Span.of(250, 720, crop.top, 256, crop.flip, 1)
    columns = Span.of(400, 1280, crop.left, 256, crop.mirror, 8)
    part = packed[:, rows.start : rows.stop, columns.start // 8 : columns.stop // 8]
    image = torch.zeros(1, 1, 3, 2, 2, dtype=torch.uint8)
    arrived = {"blur": image, "sharp": image, "counts": torch.from_numpy(count_spikes(part, 32))[None, None]}
    for name, span in (("rows", rows), ("columns", columns)):
        arrived[f"{name}_at"] = torch.from_numpy(np.stack([span.taps.low, span.taps.high]))[None]
        arrived[f"{name}_weight"] = torch.from_numpy(span.taps.weight)[None]
    assembled = Assembler(config, shape, torch.device("cpu"))(arrived)["spike"][0, 0]
    assert whole.nbytes == 32 * 720 * 1280 * 4
    assert torch.equal(assembled, crop.cut(whole))


def test_every_change_has_a_class_and_a_place() -> None:
    changes = tomllib.loads((EXPERT / "changes.toml").read_text())["change"]
    assert {change["class"] for change in changes} == {"lossless", "numeric", "training"}
    for change in changes:
        file, _, function = change["where"].partition(":")
        assert re.search(rf"def {function}\(", (EXPERT / file).read_text()), change["where"]
        assert change["what"]
        assert change["replaces"]


def test_batches_avoid_shared_memory_that_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    from deblur import loader

    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 64 * 2**20}))
    assert loader.collate_for(6, 50 * 2**20) is loader.as_arrays
    assert loader.collate_for(6, 2**20) is loader.default_collate
    sample = {"blur": torch.rand(2, 3)}
    batch = loader.as_arrays([sample, sample])
    assert isinstance(batch["blur"], np.ndarray)
    assert torch.equal(loader.as_tensors(batch)["blur"][1], sample["blur"])
