"""Experiments on the user's script: which trials to make, making and keeping them, and what they prove."""
