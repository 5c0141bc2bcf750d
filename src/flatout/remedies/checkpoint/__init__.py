"""How checkpoints are written."""
