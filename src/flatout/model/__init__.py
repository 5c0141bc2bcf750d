"""One model of a training step: what bounds it, and how long it takes after a change."""
