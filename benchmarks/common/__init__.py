"""What all benchmarks share: alternation, statistics, child processes, results."""
