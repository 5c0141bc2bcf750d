"""Settings of a run, which may be changed while it runs."""

# mypy: ignore-errors
import os

import yaml

DEFAULTS = {
    "model": {"hidden": 64, "layers": 1, "dropout": 0.0, "horizon": 24, "window": 96},
    "optim": {"name": "adam", "lr": 0.002, "clip": 1.0, "betas": [0.9, 0.999]},
    "log": {"every": 40, "fields": ["loss", "mae", "lr"]},
    "meters": [
        {"id": f"meter-{i:03d}", "site": f"site-{i % 7}", "scale": round(1 + 0.01 * i, 3), "use": True}
        for i in range(40)
    ],
}


def write_defaults(folder):
    path = os.path.join(folder, "run.yaml")
    with open(path, "w") as f:
        yaml.safe_dump(DEFAULTS, f)
    return path


def load(path):
    with open(path) as f:
        return yaml.safe_load(f)  # guilty
