"""A run, or the record of a fix, as one HTML file that needs nothing else."""
