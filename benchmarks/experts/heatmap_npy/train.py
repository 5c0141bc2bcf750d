"""heatmap_npy as an expert would write it; every change is listed in changes.toml.

The flags are those of the project's train.py, and `--allow`: the highest class of change that may be made.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "src" / "flatout" / "workloads" / "heatmap_npy"))

import numpy as np
import torch
from torch import Tensor

from slider import checkpoint
from slider.engine import autocast, channel_statistics
from slider.errors import SliderError, one_line
from slider.generate import prepare
from slider.loaders import Batch, epoch_order
from slider.metrics import localisation_error
from slider.model import SliderNet
from slider.options import Options, build_parser, read_options
from slider_expert.background import Log, Saver
from slider_expert.reader import NpyReader, make_loader, reader_threads
from slider_expert.steps import REPORT, Stepper
from slider_expert.upload import Uploader

CLASSES = ("lossless", "numeric", "training")
STEP_SAMPLES = 256  # below this the GPU has too little to do in a step


def set_up(options: Options, numeric: bool) -> None:
    random.seed(options.seed)
    np.random.seed(options.seed)
    torch.manual_seed(options.seed)
    if options.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    benchmark = numeric and options.config.train.cudnn_benchmark and not options.deterministic
    torch.backends.cudnn.deterministic = not benchmark
    torch.backends.cudnn.benchmark = benchmark
    if numeric:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True


def files_per_step(samples_per_file: int, files: int) -> int:
    """As many as fill a step, but no more than a quarter of an epoch."""
    return max(1, min(STEP_SAMPLES // samples_per_file, files // 4))


class Training:
    def __init__(self, options: Options, folder: Path, allow: str, state: dict[str, Any] | None) -> None:
        self.options, self.folder, self.config = options, folder, options.config
        level = CLASSES.index(allow)
        set_up(options, numeric=level >= 1)
        data = self.config.data
        self.files = files_per_step(data.batch_size, data.train_files) if level >= 2 else 1
        self.threads = reader_threads(self.config.loader.num_workers)
        self.model = SliderNet(self.config.model).to(options.device)
        self.model.set_statistics(*self._statistics())
        on_gpu = options.device.type == "cuda"
        if on_gpu:
            # A graph cannot be captured on the default stream; everything happens on one other.
            torch.cuda.synchronize()
            torch.cuda.set_stream(torch.cuda.Stream())
        # Adam is safe with the square root of the growth, unlike the linear rule made for SGD.
        scale = math.sqrt(self.files)
        self.stepper = Stepper(self.config, self.model, options.device, on_gpu and level >= 1, scale)
        self.upload = Uploader(options.device)
        self.log, self.saver = Log(REPORT), Saver(options.out / "last.pt")
        self.reports: list[Tensor] = []
        self.val_batches: list[Batch] = []
        self.step, self.samples = 0, 0
        if state:
            self._resume(state)

    def _statistics(self) -> tuple[Tensor, Tensor]:
        groups = [[index] for index in range(self.config.data.calibration_files)]
        reader = NpyReader(self.folder, "train", groups, ["images"], self.config.data, self.threads, slots=2)
        return channel_statistics(make_loader(reader), self.options.device)

    def _resume(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.stepper.load_optimizer_state(state["optimizer"])
        torch.set_rng_state(state["rng"])
        self.step, self.samples = int(state["step"]), int(state["samples"])

    def save(self) -> None:
        state = checkpoint.snapshot(self.model, self.stepper.optimizer, self.step, self.samples, self.config)
        state["optimizer"] = self.stepper.optimizer_state(self.step)
        self.saver.save(state)

    def groups(self) -> list[list[int]]:
        """The files of every step that is still to do; epochs follow each other without a seam."""
        data = self.config.data
        done = self.samples // data.batch_size
        end = done + (self.options.steps - self.step) * self.files
        epochs = range(done // data.train_files, end // data.train_files + 1)
        order = [index for epoch in epochs for index in epoch_order(self.options.seed, epoch, data.train_files)]
        first = done - epochs.start * data.train_files
        order = order[first : first + end - done]
        return [order[start : start + self.files] for start in range(0, len(order), self.files)]

    def fit(self) -> None:
        reader = self._reader("train", self.groups(), ["images", "heatmaps", "offsets"])
        self.model.train()
        for batch in make_loader(reader):
            self.reports.append(self.stepper(self.upload(batch), self.step))
            self.upload.done()
            before = self.samples
            self.step += 1
            self.samples += batch["images"].shape[0]
            if self.step % self.config.train.log_interval == 0:
                recent = self.reports[-self.config.train.log_interval :]
                self.log.add(self.step, torch.stack(recent).mean(dim=0))
            self._end_epochs(before)
        self.log.flush(wait=True)

    def _end_epochs(self, before: int) -> None:
        """Evaluate and save as often per epoch as the project does."""
        data, train = self.config.data, self.config.train
        epoch_samples = data.batch_size * data.train_files
        first, last = before // epoch_samples, self.samples // epoch_samples
        if first // train.eval_epochs != last // train.eval_epochs:
            # Kept on the device from the first evaluation on.
            self.val_batches = self.val_batches or self._split("val", data.val_files)
            print(f"epoch {last} val_error_px={self.evaluate(self.val_batches):.3f}", flush=True)
        if first // train.save_epochs != last // train.save_epochs:
            self.save()

    def _split(self, split: str, files: int) -> list[Batch]:
        reader = self._reader(split, [[index] for index in range(files)], ["images", "points"])
        device = self.options.device
        return [{name: values.to(device, copy=True) for name, values in batch.items()} for batch in make_loader(reader)]

    def _reader(self, split: str, groups: Sequence[Sequence[int]], arrays: list[str]) -> NpyReader:
        data = self.config.data
        return NpyReader(self.folder, split, groups, arrays, data, self.threads, copy_stream=self.upload.stream)

    def test(self) -> float:
        return self.evaluate(self._split("test", self.config.data.test_files))

    @torch.no_grad()
    def evaluate(self, batches: list[Batch]) -> float:
        """Mean localisation error in pixels; one wait at the end."""
        self.model.eval()
        sums, count = [], 0
        for batch in batches:
            with autocast(self.config, self.options.device):
                logits, offsets = self.model(batch["images"])
            errors = localisation_error(logits, offsets, batch["points"], self.config.data.stride)
            sums.append(errors.sum())
            count += errors.numel()
        self.model.train()
        total: float = sum(torch.stack(sums).tolist())
        return total / count


def run(options: Options, allow: str) -> None:
    config = options.config
    state = checkpoint.read(options.resume, config, options.steps) if options.resume else None
    folder = prepare(options.data, config.size, config.data, options.make_workers)
    if options.make_data_only:
        return
    checkpoint.prepare_folder(options.out)
    training = Training(options, folder, allow, state)
    training.fit()
    training.save()
    error_px = training.test()
    training.saver.join()
    losses: list[float] = torch.stack(training.reports)[:, 0].tolist()
    if options.losses:
        options.losses.write_text(json.dumps(losses))
    figures = f"steps={training.step} loss={losses[-1]:.6f} error_px={error_px:.3f} samples={training.samples}"
    print(f"final: {figures}", flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    parser.add_argument("--allow", choices=CLASSES, default="training", help="the highest class of change to make")
    try:
        parsed = parser.parse_args(argv)
        run(read_options(parsed), parsed.allow)
    except SliderError as error:
        print(f"train.py: error: {one_line(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
