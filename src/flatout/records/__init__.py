"""Frozen records that the stages hand to each other. Standard library only."""
