"""What the experiment is made of."""

# mypy: ignore-errors

PHOTO = 400
CROP = 40
BATCH = 8
LR = 2e-3
WORKERS = 1
CHANNELS = 12
