"""Timers that mislead, and tools that are gone."""
