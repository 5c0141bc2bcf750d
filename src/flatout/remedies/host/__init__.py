"""What the host does besides training."""
