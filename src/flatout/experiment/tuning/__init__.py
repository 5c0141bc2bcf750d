"""Searches over the user's knobs: which settings to try next, and which of those measured to take."""
