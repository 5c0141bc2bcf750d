"""Reads a training project's source, without running it: files, functions, the code of a step, tensors, values."""
