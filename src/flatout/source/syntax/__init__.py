"""Text and syntax of files: found on disk, parsed into modules, edited and written back. Knows nothing of training."""
