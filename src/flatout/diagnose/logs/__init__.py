"""Reads the text a training printed, whoever printed it, and says how fast it went."""
