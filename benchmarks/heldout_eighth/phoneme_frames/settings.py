"""The settings of a run, as a nested mapping; the command line overrides a few of them."""

# mypy: ignore-errors
SETTINGS = {
    "seed": 13,
    "corpus": {"phonemes": 30, "bands": 40, "shortest": 30, "longest": 300, "pool": 96},
    "batching": {"utterances": 12, "max_frames": 300},  # guilty
    "model": {"width": 64, "layers": 1},
    "training": {"rate": 1e-3, "clip": 5.0, "report_every": 20},
}
