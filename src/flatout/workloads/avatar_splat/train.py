"""Train a head avatar of Gaussians bound to a mesh."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from splat import checkpoint
from splat.dataset import AvatarFrames, CameraSample, ShuffledFrames, only, stacked
from splat.densify import ScreenStats, densify
from splat.errors import UserError, told
from splat.evaluate import evaluate
from splat.gaussians import GaussianModel, initial, set_position_rate
from splat.live import LiveView
from splat.logs import Writer, summary_writer
from splat.make_data import ensure
from splat.mesh import Head, head
from splat.objective import objective
from splat.options import Options, chosen_device, make_deterministic, parse, parser
from splat.perceptual import PerceptualNet
from splat.render import renderer
from splat.training import Training


def start_training(options: Options, mesh: Head, device: torch.device) -> Training:
    """A new training, or the one of a checkpoint."""
    state = checkpoint.load(options.resume, options.size, device) if options.resume else None
    if state is None:
        generator = torch.Generator().manual_seed(options.seed)
        model = initial(options.preset.gaussians, len(mesh.faces), generator, device)
    else:
        model = GaussianModel(state["parameters"], state["binding"])
    optimizer = torch.optim.Adam(model.groups(options.lr_scale), lr=0.0, eps=1e-15)
    training = Training(model, optimizer, ScreenStats(len(model), device))
    if state is not None:
        checkpoint.restore(training, state)
        if training.step >= options.steps:
            raise UserError(
                f"--resume '{options.resume}' is at step {training.step}: --steps {options.steps} must be more"
            )
    return training


def frames_of(loader: DataLoader[CameraSample]) -> Iterator[CameraSample]:
    """Frames without end, epoch after epoch."""
    while True:
        yield from loader


def log_step(writer: Writer, step: int, parts: dict[str, Tensor], visible: int) -> float:
    """Log a step's figures; returns the loss."""
    loss = parts["loss"].item()
    writer.add_scalar("train/loss", loss, step)
    for name in ("l1", "ssim", "perceptual", "psnr"):
        writer.add_scalar(f"train/{name}", parts[name].item(), step)
    writer.add_scalar("train/visible", visible, step)
    return loss


def train(options: Options, folder: Path, device: torch.device) -> dict[str, float]:
    """Train up to `--steps`; returns the final figures."""
    preset = options.preset
    render = renderer(options.backend)
    mesh = head(preset.mesh_level, device)
    training = start_training(options, mesh, device)
    model, optimizer = training.model, training.optimizer
    perceptual = PerceptualNet(preset.perceptual_width).to(device)

    dataset = AvatarFrames(folder, "train", preset.resolution)
    sampler = ShuffledFrames(len(dataset), options.seed, training.samples)
    loader = DataLoader(
        dataset, batch_size=1, sampler=sampler, num_workers=0, collate_fn=only, pin_memory=device.type == "cuda"
    )
    frames = frames_of(loader)
    writer = summary_writer(options.out / "tensorboard")
    live = LiveView.of(options, model, mesh, render)

    def evaluated() -> dict[str, float]:
        return evaluate(model, mesh, render, folder, preset, writer, training.step, options.vis_images)

    losses: list[float] = []
    last_time = time.perf_counter()
    while training.step < options.steps:
        if live is not None:
            live.serve()
        batch = stacked([next(frames).to(device) for _ in range(options.cameras_per_step)])
        rate = set_position_rate(optimizer, training.step, preset.decay_steps, options.lr_scale)

        posed = model.posed(mesh.posed(batch.expression, batch.rotation, batch.translation))
        rendered = render(posed, batch.view, preset.resolution, preset.resolution, preset.per_tile)
        parts = objective(rendered, batch, model, perceptual)
        if not torch.isfinite(parts["loss"]):
            raise UserError(f"the loss became infinite or NaN at step {training.step + 1}: try a smaller --lr-scale")
        parts["loss"].backward()
        visible = training.stats.update(rendered, preset.resolution)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        training.step += 1
        training.samples += options.cameras_per_step

        loss = log_step(writer, training.step, parts, visible)
        losses.append(loss)
        writer.add_scalar("train/gaussians", len(model), training.step)
        writer.add_scalar("train/xyz_lr", rate, training.step)

        if training.step >= preset.densify_from and training.step % options.densify_interval == 0:
            densify(model, optimizer, training.stats, options.densify_threshold, preset.max_gaussians)
        if training.step % 10 == 0:
            now = time.perf_counter()
            pace = 10 / (now - last_time)
            last_time = now
            print(
                f"step {training.step}/{options.steps} loss {loss:.5f} gaussians {len(model)} "
                f"{pace:.1f} it/s {pace * options.cameras_per_step:.1f} samples/s",
                flush=True,
            )
        if training.step % options.checkpoint_interval == 0:
            checkpoint.save(options.out / f"step_{training.step:06d}.pt", training, options.size)
        if training.step % options.eval_interval == 0 and training.step < options.steps:
            metrics = evaluated()
            print(
                f"evaluation at step {training.step}: psnr {metrics['psnr']:.2f} ssim {metrics['ssim']:.4f}", flush=True
            )

    metrics = evaluated()
    checkpoint.save(options.out / "last.pt", training, options.size)
    if live is not None:
        live.close()
    writer.close()
    if options.losses:
        options.losses.write_text(json.dumps(losses))
    return {"loss": losses[-1], **metrics}


def run(options: Options) -> None:
    """Make the data, train, and say how it ended."""
    if options.deterministic:
        make_deterministic()
    torch.manual_seed(options.seed)
    device = chosen_device(options)
    folder = ensure(options.data, options.preset, options.make_workers, device)
    if options.make_data_only:
        return
    end = train(options, folder, device)
    print(f"final: steps={options.steps} loss={end['loss']:.6f} psnr={end['psnr']:.4f} ssim={end['ssim']:.5f}")


def main(argv: list[str] | None = None) -> int:
    """Run the script; 2 means the user has something to mend."""
    options = parse(parser(__doc__ or ""), argv)
    try:
        run(options)
    except UserError as error:
        print(f"train.py: error: {told(error)}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"train.py: error: {error}; see --out, --data and --losses", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
