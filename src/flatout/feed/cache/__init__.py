"""One cache of samples for all workers and ranks of a machine."""
