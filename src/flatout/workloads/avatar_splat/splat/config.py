"""The two sizes of the experiment, and the learning rates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """Everything that follows from `--size`."""

    size: str
    gaussians: int
    max_gaussians: int
    hidden_gaussians: int
    mesh_level: int
    resolution: int
    per_tile: int
    frame_height: int
    frame_width: int
    cameras: int
    timesteps: int
    test_frames: int
    perceptual_width: int
    steps: int
    eval_interval: int
    checkpoint_interval: int
    densify_from: int
    densify_interval: int
    decay_steps: int


PRESETS = {
    "tiny": Preset(
        size="tiny",
        gaussians=256,
        max_gaussians=272,
        hidden_gaussians=320,
        mesh_level=1,
        resolution=32,
        per_tile=32,
        frame_height=100,
        frame_width=68,
        cameras=4,
        timesteps=5,
        test_frames=10,
        perceptual_width=8,
        steps=30,
        eval_interval=15,
        checkpoint_interval=15,
        densify_from=10,
        densify_interval=10,
        decay_steps=200,
    ),
    "full": Preset(
        size="full",
        gaussians=20_000,
        max_gaussians=24_000,
        hidden_gaussians=24_000,
        mesh_level=4,
        resolution=512,
        per_tile=256,
        frame_height=802,
        frame_width=550,
        cameras=16,
        timesteps=24,
        test_frames=12,
        perceptual_width=32,
        steps=600,
        eval_interval=100,
        checkpoint_interval=200,
        densify_from=100,
        densify_interval=100,
        decay_steps=30_000,
    ),
}

EXPRESSIONS = 8
JOINTS = 2

LEARNING_RATES = {
    "xyz": 5e-3,
    "rotation": 1e-3,
    "scaling": 1.7e-2,
    "opacity": 5e-2,
    "sh_dc": 2.5e-3,
    "sh_rest": 1.25e-4,
}
XYZ_FINAL_RATE = 5e-5

SSIM_WEIGHT = 0.2
PERCEPTUAL_WEIGHT = 0.05
SILHOUETTE_WEIGHT = 0.1
OFFSET_WEIGHT = 0.01
SIZE_WEIGHT = 1.0
FACE_WEIGHT = 2.0
