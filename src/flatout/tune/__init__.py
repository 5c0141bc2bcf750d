"""Searches over knobs: which settings to try next, and which of those measured to take."""
