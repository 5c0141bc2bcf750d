"""Waits for the device that need not be."""
