"""bev_seg: the habits of its guide are all there, it gives the same numbers twice, and it says what is wrong."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import io
import json
import math
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from tests.workloads.projects import EXPERTS, WORKLOADS, Ended, start

NAME = "bev_seg"
STEPS = 7  # an epoch of six steps and one of the next
OPTIONS = ("--options", "checkpoint_config.interval=4", "evaluation.interval=4")
EVALUATIONS = 2
VAL_SAMPLES = 6

Main = Callable[[list[str]], int]


@dataclass
class Counts:
    """What happened while a script ran in this process."""

    operations: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)  # item(), bool() and the like, by the function that has them
    masks: int = 0
    copies: list[bool] = field(default_factory=list)  # of every batch tensor's .to(device), whether it was non_blocking
    loaders: list[DataLoader[Any]] = field(default_factory=list)
    iterators: list[DataLoader[Any]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    said: str = ""


def caller() -> str:
    """The innermost function of the project's own code."""
    frame = sys._getframe(2)
    while frame is not None:
        if NAME in Path(frame.f_code.co_filename).parts and not frame.f_code.co_name.startswith("<"):
            return frame.f_code.co_name
        frame = frame.f_back
    return "?"


class _Operations(TorchDispatchMode):
    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket).removeprefix("aten.")
        self.counts.operations[name] += 1
        if name == "_local_scalar_dense":
            self.counts.waits[caller()] += 1
        if name == "index" and any(index is not None and index.dtype == torch.bool for index in args[1]):
            self.counts.masks += 1
        return func(*args, **(kwargs or {}))


class _Copies(TorchFunctionMode):
    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.to and caller() == "to_device":
            self.counts.copies.append(bool((kwargs or {}).get("non_blocking", False)))
        return func(*args, **(kwargs or {}))


def call(main: Main, arguments: list[str]) -> Ended:
    """Run a script's main() in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    torch.use_deterministic_algorithms(False)
    return Ended(code, out.getvalue(), err.getvalue())


def watch(main: Main, arguments: list[str], losses: Path) -> Counts:
    """Run it and count."""
    counts = Counts()
    made, begun = DataLoader.__init__, DataLoader.__iter__

    def make(self: DataLoader[Any], *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        counts.loaders.append(self)

    def begin(self: DataLoader[Any]) -> Any:
        counts.iterators.append(self)
        return begun(self)

    with pytest.MonkeyPatch.context() as patch, _Copies(counts), _Operations(counts):
        patch.setattr(DataLoader, "__init__", make)
        patch.setattr(DataLoader, "__iter__", begin)
        ended = call(main, arguments)
    assert ended.code == 0, ended.err
    counts.said = ended.out
    counts.losses = json.loads(losses.read_text())
    return counts


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(NAME)


@pytest.fixture(scope="module")
def project() -> Iterator[Callable[[str], ModuleType]]:
    """Modules of the project (`bev.…`). One thread: several wait for each other when tests run side by side."""
    path, threads = sys.path.copy(), torch.get_num_threads()
    sys.path[:0] = [str(WORKLOADS / NAME), str(EXPERTS / NAME)]
    torch.set_num_threads(1)
    yield importlib.import_module
    sys.path[:] = path
    torch.set_num_threads(threads)


def load(folder: Path) -> ModuleType:
    """A training script, loaded by path as it is run."""
    spec = importlib.util.spec_from_file_location(f"{folder.parent.name}_{NAME}", folder / "train.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def main(project: Callable[[str], ModuleType]) -> Main:
    """The project's main()."""
    loaded: Main = load(WORKLOADS / NAME).main
    return loaded


@pytest.fixture(scope="module")
def expert_main(project: Callable[[str], ModuleType]) -> Main:
    """The expert's main()."""
    loaded: Main = load(EXPERTS / NAME).main
    return loaded


@pytest.fixture(scope="module")
def flags(here: Path) -> Callable[..., list[str]]:
    """The flags of a small run; its results go to a folder of that name."""

    def make(name: str, *more: str | Path, steps: int = STEPS) -> list[str]:
        common = ["--data", here / "data", "--out", here / name, "--losses", here / f"{name}.json", "--steps", steps]
        return [str(flag) for flag in [*common, "--size", "tiny", "--device", "cpu", "--deterministic", *more]]

    return make


@pytest.fixture(scope="module")
def before(here: Path, main: Main, flags: Callable[..., list[str]]) -> Counts:
    """A first run of the project; it makes the data too."""
    return watch(main, flags("before", *OPTIONS), here / "before.json")


@pytest.fixture(scope="module")
def expert(before: Counts, here: Path, expert_main: Main, flags: Callable[..., list[str]]) -> Counts:
    """The expert's form, with nothing that changes a number."""
    return watch(expert_main, flags("expert", "--allow", "lossless", *OPTIONS), here / "expert.json")


def final(said: str) -> dict[str, float]:
    return Ended(0, said, "").final


# What the guide's project does, counted.


def test_the_loader_keys_of_the_config_never_reach_the_loader(
    before: Counts, project: Callable[[str], ModuleType]
) -> None:
    config = project("bev.config")
    data = config.load_config(config.CONFIGS / "lss_swin.py", "full").data
    train, val = before.loaders

    assert (data.pin_memory, data.persistent_workers, data.prefetch_factor) == (True, True, 4)
    for loader in (train, val):
        assert (loader.pin_memory, loader.persistent_workers, loader.prefetch_factor) == (False, False, 2)


def test_the_child_config_takes_twenty_workers_down_to_two(
    before: Counts, project: Callable[[str], ModuleType]
) -> None:
    config = project("bev.config")
    base = config.read_file(config.CONFIGS / "_base_" / "default.py")

    assert base["data"]["workers_per_gpu"] == 20
    assert config.read_file(config.CONFIGS / "lss_swin.py")["data"]["workers_per_gpu"] == 2
    assert before.loaders[0].num_workers == 2


def test_evaluation_has_batch_one_and_one_worker(before: Counts) -> None:
    val = before.loaders[1]

    assert (val.batch_size, val.num_workers) == (1, 1)
    assert before.iterators.count(val) == EVALUATIONS


def test_worker_processes_start_anew_every_epoch(before: Counts) -> None:
    assert before.iterators.count(before.loaders[0]) == 2


def test_every_copy_to_the_device_blocks(before: Counts) -> None:
    tensors = 3  # image, camera, label
    assert len(before.copies) == tensors * (STEPS + EVALUATIONS * VAL_SAMPLES)
    assert not any(before.copies)


def test_every_step_waits_for_isnan_and_item(before: Counts) -> None:
    assert before.operations["isnan"] == STEPS
    assert before.waits["train_iter"] == 2 * STEPS


def test_the_pool_selects_by_masks_of_unknown_size(before: Counts) -> None:
    assert before.masks == 4 * (STEPS + EVALUATIONS * VAL_SAMPLES)


def test_progress_is_printed_and_logged_every_step(before: Counts, here: Path) -> None:
    assert sum("data_time:" in line for line in before.said.splitlines()) == STEPS
    assert len((here / "before" / "log.json").read_text().splitlines()) == STEPS


def test_fp16_looks_at_every_gradient_twice(
    before: Counts, here: Path, main: Main, flags: Callable[..., list[str]]
) -> None:
    options = ["--options", "fp16.enabled=True", "optimizer_config.cumulative_iters=2", "evaluation.interval=9"]
    counts = watch(main, flags("fp16", *options, steps=1), here / "fp16.json")

    state = torch.load(here / "fp16" / "latest.pth", weights_only=True)
    parameters = len(state["optimizer"]["param_groups"][0]["params"])
    assert counts.waits["bad_gradients"] == 2 * parameters
    assert counts.operations["isnan"] == parameters + 2  # and the loss of both iterations
    assert "FP16 mixed precision training enabled, loss_scale=512.0" in counts.said
    assert state["scaler"]["scale"] == 512.0
    assert (state["iter"], state["step"]) == (2, 1)


# What every project here promises.


def test_a_run_by_path_gives_the_same_losses_bit_for_bit(before: Counts, here: Path, flags: Any) -> None:
    ended = start(WORKLOADS / NAME / "train.py", *flags("again", *OPTIONS), OMP_NUM_THREADS="1")

    assert ended.code == 0, ended.err
    assert json.loads((here / "again.json").read_text()) == before.losses
    assert ended.final == final(before.said)


def test_the_loss_falls_and_the_metric_is_a_share(before: Counts) -> None:
    figures = final(before.said)

    assert figures["steps"] == STEPS == len(before.losses)
    assert sum(before.losses[-2:]) < sum(before.losses[:2])
    assert math.isclose(figures["loss"], before.losses[-1], abs_tol=1e-6)
    assert 0 <= figures["miou"] <= 1


def test_a_resumed_run_goes_on_as_if_unbroken(before: Counts, here: Path, main: Main, flags: Any) -> None:
    ended = call(main, flags("resumed", "--resume", here / "before" / "iter_4.pth", *OPTIONS))

    assert ended.code == 0, ended.err
    assert json.loads((here / "resumed.json").read_text()) == before.losses[4:]
    assert ended.final == final(before.said)


@pytest.mark.variant  # the expert's form is a benchmark's
def test_the_lossless_expert_gives_the_same_losses_without_waiting(before: Counts, expert: Counts) -> None:
    train, val = expert.loaders

    assert expert.losses == before.losses
    assert final(expert.said) == final(before.said)
    assert expert.masks == 0
    assert expert.waits["train_iter"] == 0
    assert expert.waits["read"] + expert.waits["evaluate"] <= 2
    assert all(expert.copies)
    assert train.persistent_workers and val.persistent_workers
    assert expert.iterators.count(train) == 1


@pytest.mark.variant  # the expert's form is a benchmark's
def test_the_training_expert_has_four_times_the_batch(
    before: Counts, here: Path, expert_main: Main, flags: Any
) -> None:
    counts = watch(expert_main, flags("training", steps=1), here / "training.json")

    batches = counts.loaders[0].batch_sampler
    assert batches.batch_size == 16
    assert counts.loaders[1].batch_size == 8
    log = json.loads((here / "training" / "log.json").read_text().splitlines()[0])
    assert log["lr"] == pytest.approx(4 * json.loads((here / "before" / "log.json").read_text().splitlines()[0])["lr"])


# What it says when something is wrong.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "0"], "--steps: must be at least 1, got 0"),
        (["--seed", "x"], "--seed: must be a whole number, got 'x'"),
        (["--size", "huge"], "'huge'"),
        (["--nonsense"], "--nonsense"),
        (["--config", "none.py"], "none.py"),
        (["--options", "data.wrokers=3"], "unknown key 'data.wrokers'"),
        (["--options", "data"], "key=value, got 'data'"),
        (["--options", "data.samples_per_gpu=many"], "data.samples_per_gpu must be int, got 'many'"),
        (["--options", "data.samples_per_gpu=0"], "data.samples_per_gpu must be at least 1, got 0"),
        (["--options", "data.samples_per_gpu=25"], "data.train_samples must be at least 25, got 24"),
        (["--options", "fp16.loss_scale=auto"], "fp16.loss_scale must be above 0 or 'dynamic', got 'auto'"),
        (["--options", "model.num_heads=[5,5,5,5]"], "does not divide by model.num_heads [5, 5, 5, 5]"),
        (["--options", "data.train_samples=25"], "holds other data"),
        (["--resume", "none.pth"], "none.pth does not exist"),
    ],
)
def test_a_bad_flag_is_one_line(before: Counts, main: Main, flags: Any, arguments: list[str], words: str) -> None:
    check_error(call(main, [*flags("error"), *arguments]), words)


def check_error(ended: Ended, words: str) -> None:
    assert ended.code == 2
    (line,) = ended.err.splitlines()
    assert line.startswith("train.py: error: ") and words in line
    assert "final:" not in ended.out


def test_a_config_that_does_not_run_is_one_line(before: Counts, here: Path, main: Main, flags: Any) -> None:
    (here / "broken.py").write_text("data = dict(\n")

    check_error(
        call(main, [*flags("error"), "--config", str(here / "broken.py")]), "broken.py does not run: SyntaxError"
    )


def test_a_checkpoint_that_does_not_fit_is_one_line(before: Counts, here: Path, main: Main, flags: Any) -> None:
    foreign = here / "foreign.pth"
    foreign.write_bytes(b"not a checkpoint")
    other = here / "other.pth"
    state = torch.load(here / "before" / "iter_4.pth", weights_only=True)
    torch.save({**state, "size": "full"}, other)
    done = here / "before" / f"iter_{STEPS}.pth"

    check_error(call(main, [*flags("error"), "--resume", str(foreign)]), "not a readable checkpoint")
    check_error(
        call(main, [*flags("error"), "--resume", str(other)]), "is of size full, this run is tiny; add --size full"
    )
    check_error(call(main, [*flags("error"), "--resume", str(done)]), "already at step 7; give --steps above")
    model = [*flags("error"), "--options", "model.embed_dim=24", "--resume", str(here / "before" / "iter_4.pth")]
    check_error(call(main, model), "holds another model")


def test_a_corrupt_sample_is_one_line_though_a_worker_finds_it(
    before: Counts, here: Path, main: Main, flags: Any
) -> None:
    shutil.copytree(here / "data", here / "corrupt")
    for image in (here / "corrupt" / "tiny" / "train").glob("*.jpg"):
        image.write_bytes(image.read_bytes()[:500])

    ended = call(main, [*flags("error"), "--data", str(here / "corrupt")])

    # The error's traceback keeps the loader in a cycle, where its workers would be joined until a timeout.
    for item in gc.get_objects():
        if type(item) is _MultiProcessingDataLoaderIter:
            item._shutdown_workers()
    check_error(ended, ".jpg: ")
    assert "to have the data made again" in ended.err


def test_a_missing_sample_is_one_line(before: Counts, here: Path, main: Main, flags: Any) -> None:
    shutil.copytree(here / "data", here / "missing")
    (here / "missing" / "tiny" / "val" / "000003.jpg").unlink()

    check_error(call(main, [*flags("error"), "--data", str(here / "missing")]), "val/000003.jpg is missing")


def test_unfinished_data_is_not_used(before: Counts, here: Path, main: Main, flags: Any) -> None:
    shutil.copytree(here / "data", here / "unfinished")
    (here / "unfinished" / "tiny" / "complete.json").unlink()

    check_error(call(main, [*flags("error"), "--data", str(here / "unfinished")]), "not finished data")
