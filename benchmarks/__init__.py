"""Benchmarks: each prints a ratio measured in one run, writes a dated result, and can fail (`--gate`)."""
