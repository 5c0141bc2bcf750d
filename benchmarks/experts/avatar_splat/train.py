"""Train a head avatar of Gaussians bound to a mesh, as an expert would write it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

sys.path.insert(1, str(Path(__file__).resolve().parents[3] / "src" / "flatout" / "workloads" / "avatar_splat"))

from splat import checkpoint
from splat.dataset import AvatarFrames, ShuffledFrames
from splat.densify import densify
from splat.errors import UserError, told
from splat.gaussians import GaussianModel, initial, set_position_rate
from splat.live import LiveView
from splat.logs import summary_writer
from splat.make_data import ensure
from splat.mesh import Head, head
from splat.options import Options, Parser, chosen_device, make_deterministic, parse, parser
from splat.perceptual import PerceptualNet
from splat.render import renderer
from splat.training import Training
from splat_expert.evaluating import Evaluator
from splat_expert.loading import Unpacker, endless, make_loader
from splat_expert.stepping import Objective, ScalarLog, SteadyStats

CLASSES = ("lossless", "numeric", "training")
FLUSH_STEPS = 50
CAMERAS = 4


def allowed(options: Options, kind: str) -> bool:
    """Whether changes of this class may be used."""
    return CLASSES.index(kind) <= CLASSES.index(options.allow)


def read_options(made: Parser, argv: list[str] | None) -> Options:
    """The project's flags with the expert's defaults."""
    made.add_argument("--allow", choices=CLASSES, default="training", help="highest class of change to use")
    made.set_defaults(viewer="off")
    first = made.parse_args(argv)
    if first.allow == "training":
        # Four cameras a step: the gradient's noise halves, so Adam's steps may be twice as long.
        made.set_defaults(cameras_per_step=CAMERAS, lr_scale=CAMERAS**0.5, vis_images=5)
    options = parse(made, argv)
    if first.allow == "training" and first.eval_interval is None:
        options.eval_interval = 3 * options.preset.eval_interval
    return options


def use_reduced_precision() -> None:
    """TF32 matrix products and cuDNN's own choice of algorithms."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()


def start_training(options: Options, mesh: Head, device: torch.device) -> Training:
    """A new training, or the one of a checkpoint."""
    state = checkpoint.load(options.resume, options.size, device) if options.resume else None
    if state is None:
        generator = torch.Generator().manual_seed(options.seed)
        model = initial(options.preset.gaussians, len(mesh.faces), generator, device)
    else:
        model = GaussianModel(state["parameters"], state["binding"])
    fused = True if allowed(options, "numeric") else None
    optimizer = torch.optim.Adam(model.groups(options.lr_scale), lr=0.0, eps=1e-15, fused=fused)
    training = Training(model, optimizer, SteadyStats(len(model), device))
    if state is not None:
        checkpoint.restore(training, state)
        if training.step >= options.steps:
            raise UserError(
                f"--resume '{options.resume}' is at step {training.step}: --steps {options.steps} must be more"
            )
    return training


def train(options: Options, folder: Path, device: torch.device) -> dict[str, float]:
    """Train up to `--steps`; returns the final figures."""
    preset, cameras = options.preset, options.cameras_per_step
    if allowed(options, "numeric"):
        use_reduced_precision()
    render = renderer(options.backend)
    mesh = head(preset.mesh_level, device)
    training = start_training(options, mesh, device)
    model, optimizer, stats = training.model, training.optimizer, training.stats
    assert isinstance(stats, SteadyStats)
    perceptual = PerceptualNet(preset.perceptual_width).to(device)
    objective = Objective(perceptual, device, reduced=allowed(options, "numeric"))

    dataset = AvatarFrames(folder, "train", preset.resolution)
    sampler = ShuffledFrames(len(dataset), options.seed, training.samples)
    batches = endless(make_loader(dataset, sampler, device), cameras)
    unpack = Unpacker(device)
    writer = summary_writer(options.out / "tensorboard")
    log = ScalarLog(writer)
    test_frames = AvatarFrames(folder, "test", preset.resolution)
    evaluator = Evaluator(test_frames, mesh, render, preset, writer, options.vis_images)
    live = LiveView.of(options, model, mesh, render)

    last_step, last_time = training.step, time.perf_counter()
    while training.step < options.steps:
        if live is not None:
            live.serve()
        batch = unpack(next(batches))
        rate = set_position_rate(optimizer, training.step, preset.decay_steps, options.lr_scale)
        posed = model.posed(mesh.posed(batch.expression, batch.rotation, batch.translation))
        rendered = render(posed, batch.view, preset.resolution, preset.resolution, preset.per_tile)
        figures = objective(rendered, batch, model)
        figures["loss"].backward()
        figures["visible"] = stats.add(rendered, preset.resolution)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        training.step += 1
        training.samples += cameras
        log.add(training.step, figures, len(model), rate)

        if training.step >= preset.densify_from and training.step % options.densify_interval == 0:
            densify(model, optimizer, stats, options.densify_threshold, preset.max_gaussians)
        if training.step % FLUSH_STEPS == 0:
            log.flush()
            now = time.perf_counter()
            pace = (training.step - last_step) / (now - last_time)
            last_step, last_time = training.step, now
            print(
                f"step {training.step}/{options.steps} loss {log.losses[-1]:.5f} gaussians {len(model)} "
                f"{pace:.1f} it/s {pace * cameras:.1f} samples/s",
                flush=True,
            )
        if training.step % options.checkpoint_interval == 0:
            checkpoint.save(options.out / f"step_{training.step:06d}.pt", training, options.size)
        if training.step % options.eval_interval == 0 and training.step < options.steps:
            metrics = evaluator(model, perceptual, objective.window, training.step)
            print(
                f"evaluation at step {training.step}: psnr {metrics['psnr']:.2f} ssim {metrics['ssim']:.4f}", flush=True
            )

    log.flush()
    metrics = evaluator(model, perceptual, objective.window, training.step)
    checkpoint.save(options.out / "last.pt", training, options.size)
    if live is not None:
        live.close()
    evaluator.close()
    writer.close()
    if options.losses:
        options.losses.write_text(json.dumps(log.losses))
    return {"loss": log.losses[-1], **metrics}


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
    options = read_options(parser(__doc__ or ""), argv)
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
